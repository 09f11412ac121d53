"""What keeps the programs of these tests from doing harm."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import unharmful
from fake_host import FakeHost, run

AS_ROOT = os.geteuid() == 0
# Tells of each attempt whether it was refused; each is harmless where it is not.
ATTEMPTS = """
import os, sys
def attempt(name, does):
    try:
        does()
        print(name, "done")
    except OSError as error:
        print(name, type(error).__name__)
attempt("make", lambda: open(%(folder)r + "/made", "w"))
attempt("change", lambda: open(%(folder)r + "/there", "a"))
attempt("remove", lambda: os.remove(%(folder)r + "/there"))
attempt("folder", lambda: os.mkdir(%(folder)r + "/folder"))
attempt("rename", lambda: os.rename(%(folder)r + "/there", %(folder)r + "/other"))
attempt("own", lambda: open("own", "w"))
print(os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups())
"""


class Harm(unittest.TestCase):
    def outside(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        Path(folder.name, "there").write_text("kept")
        return folder.name

    def attempts(self, folder):
        end = run(ATTEMPTS % {"folder": folder})
        self.assertTrue(end.ok, end.done)
        *done, ids = end.text.splitlines()
        return dict(line.split() for line in done), ids

    @unittest.skipUnless(AS_ROOT, "the tests do not run as root")
    def test_started_by_root_a_program_is_nobody_and_changes_nothing_outside_its_folder(self):
        folder = self.outside()
        done, ids = self.attempts(folder)
        self.assertEqual(ids, "65534 65534 65534 65534 []")
        self.assertEqual((done.pop("own"), set(done.values())), ("done", {"PermissionError"}))
        self.assertEqual((os.listdir(folder), Path(folder, "there").read_text()), (["there"], "kept"))
        end = run("import os\nos.setuid(0)")
        self.assertEqual(end.error["type"], "PermissionError")

    @unittest.skipUnless(unharmful.has_landlock(), "this machine has no Landlock")
    def test_a_folder_open_to_all_is_closed_to_a_program(self):
        folder = self.outside()
        os.chmod(folder, 0o777)
        os.chmod(Path(folder, "there"), 0o666)
        done, _ = self.attempts(folder)
        self.assertEqual((done.pop("own"), set(done.values())), ("done", {"PermissionError"}))
        self.assertEqual((os.listdir(folder), Path(folder, "there").read_text()), (["there"], "kept"))

    def test_a_file_has_a_size_limit(self):
        end = run("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('f', 'wb').truncate(1 << 40)")
        self.assertEqual(end.error["type"], "OSError")

    @unittest.skipUnless(AS_ROOT, "the tests do not run as root")
    def test_nothing_runs_where_root_stays_root(self):
        with mock.patch.object(os, "setresuid", lambda *_: None):
            host = FakeHost()
        try:
            with self.assertRaisesRegex(RuntimeError, "must not run as root"):
                host.warm()
            self.assertEqual(host.wait(), 71)
        finally:
            host.end()

    def test_the_interpreter_is_the_one_of_the_tests(self):
        end = run("import sys\nprint(sys.version)")
        self.assertEqual(end.text, sys.version + "\n")


if __name__ == "__main__":
    unittest.main()
