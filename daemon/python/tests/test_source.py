"""Programs as models send them: fences, marks, line ends, indentation."""

import unittest

import fake_host  # noqa: F401  (puts the runtime on the path)
from ptc_child.source import Source


def values(text):
    names = {}
    exec(Source(text).compile(), names)
    return names


def fault(text):
    try:
        Source(text).compile()
    except SyntaxError as error:
        return type(error).__name__, error.lineno
    raise AssertionError("it compiles")


class Accepted(unittest.TestCase):
    def test_a_byte_order_mark_and_foreign_line_ends(self):
        self.assertEqual(values("\ufeffx = 1\r\ny = '''a\r\nb'''\rz = 3\r\n")["y"], "a\nb")

    def test_nothing_blanks_and_comments(self):
        for text in ("", "  \n\t\n", "# only a comment\n\n", "\ufeff", "    # indented comment"):
            values(text)

    def test_a_fence_around_the_whole_text(self):
        for opening, closing in (("```python", "```"), ("```", "```"), ("~~~py", "~~~"), ("````python", "````")):
            self.assertEqual(values("\n%s\nx = 1\n%s\n\n" % (opening, closing))["x"], 1)

    def test_a_fence_inside_a_string_is_left_alone(self):
        text = 'doc = """# Title\n```python\nx = 1\n```\n"""\nn = doc.count("```")\n'
        self.assertEqual(values(text)["n"], 2)
        self.assertEqual(values("```python\n%s```" % text)["n"], 2)

    def test_everything_indented_by_the_same_amount(self):
        names = values('\n    """Doc."""\n    from __future__ import annotations\n    def f(x: Missing):\n        return 1\n    y = f(0)\n')
        self.assertEqual((names["y"], names["__doc__"]), (1, "Doc."))

    def test_indented_by_tabs_below_a_fence(self):
        self.assertEqual(values("  ```python\n\tx = 1\n\tif x:\n\t\tx = 2\n  ```")["x"], 2)

    def test_strings_keep_their_blanks(self):
        plain = 'body = """first\n  second\n\tthird\n\\tend\n"""\n'
        self.assertEqual(values(plain)["body"], "first\n  second\n\tthird\n\tend\n")
        indented = '    body = """first\n    second\n  third"""\n    rest = 1\n'
        self.assertEqual(values(indented)["body"], "first\n    second\n  third")

    def test_docstring_and_future_import_come_first(self):
        names = values('"""Doc."""\nfrom __future__ import annotations\ndef f(x: Missing): pass\n')
        self.assertEqual(names["__doc__"], "Doc.")


class Refused(unittest.TestCase):
    def test_lines_are_those_of_the_text_as_sent(self):
        self.assertEqual(fault('x = 1\nprint("a"\ny = 2\n'), ("SyntaxError", 2))
        self.assertEqual(fault('```python\nx = 1\nprint("a"\n```'), ("SyntaxError", 3))
        self.assertEqual(fault('    x = 1\n    print("a"\n    y = 2\n'), ("SyntaxError", 2))
        self.assertEqual(fault("    x = 1\n    return x\n"), ("SyntaxError", 2))

    def test_tabs_and_blanks_mixed_are_not_repaired(self):
        self.assertEqual(fault('if True:\n\tprint("tab")\n        print("spaces")\n'), ("TabError", 3))

    def test_uneven_indentation_is_not_repaired(self):
        self.assertEqual(fault("  x = 1\ny = 2\n"), ("IndentationError", 1))
        self.assertEqual(fault("  x = 1\n y = 2\n"), ("IndentationError", 2))
        self.assertEqual(fault("x = 1\n  y = 2\n"), ("IndentationError", 2))
        self.assertEqual(fault("  x = 1\nelse:\n  y = 2\n"), ("IndentationError", 1))

    def test_a_fence_that_is_not_around_everything_stays(self):
        self.assertEqual(fault("```python\nx = 1\n"), ("SyntaxError", 1))
        self.assertEqual(fault("Here it is:\n```python\nx = 1\n```"), ("SyntaxError", 1))


if __name__ == "__main__":
    unittest.main()
