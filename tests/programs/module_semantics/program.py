count = 0

class Step:
    size = 2

    def take(self):
        global count
        count += self.size
        return Step

def depth(n):
    return n and 1 + depth(n - 1)

Step().take()
print(count, depth(50), Step.__module__, [s for s in 'ab' if count])
