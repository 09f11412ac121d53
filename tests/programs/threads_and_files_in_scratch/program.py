import os, threading, tempfile, pathlib
found = []
workers = [threading.Thread(target=lambda n=n: found.append(n * n)) for n in range(4)]
for w in workers: w.start()
for w in workers: w.join()
print(sorted(found), os.listdir('.'))
pathlib.Path('notes.txt').write_text('kept for now')
with tempfile.TemporaryFile() as f:
    f.write(b'x')
print(os.listdir('.'), dict(os.environ))
