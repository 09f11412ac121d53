"""Which values JSON can hold, and how the others are named."""

import datetime
import decimal
import enum
import json
import unittest
from collections import namedtuple

import fake_host  # noqa: F401  (puts the runtime on the path)
from ptc_child.encoding import MAX_DEPTH, encode


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


class Accepted(unittest.TestCase):
    def test_values_arrive_as_written(self):
        for value in (None, True, 0, -1, 2**100, 1.5, 20.0, "", "ü \U0001f378 \x00", [], {}, {"a": [1, {"b": None}]}):
            self.assertEqual(repr(json.loads(encode(value, "value"))), repr(value))

    def test_whole_numbers_keep_every_digit(self):
        self.assertEqual(encode({"n": 10**5000}, "arguments"), b'{"n":%d}' % 10**5000)

    def test_tuples_become_lists(self):
        point = namedtuple("Point", "x y")
        self.assertEqual(encode({"a": (1, (2,)), "p": point(3, 4)}, "arguments"), b'{"a":[1,[2]],"p":[3,4]}')

    def test_enumerations_of_text_and_numbers_are_their_value(self):
        class Text(str, enum.Enum):
            A = "a"

        class Number(enum.IntEnum):
            ONE = 1

        self.assertEqual(encode([Text.A, Number.ONE], "value"), b'["a",1]')

    def test_keys_follow_json_rules(self):
        self.assertEqual(encode({1: 1, True: 2, None: 3, 1.5: 4}, "value"), b'{"1":2,"null":3,"1.5":4}')

    def test_the_same_value_twice_is_no_cycle(self):
        shared = [1]
        self.assertEqual(encode([shared, shared], "value"), b"[[1],[1]]")

    def test_nesting_up_to_the_limit(self):
        self.assertEqual(json.loads(encode(nested(MAX_DEPTH), "value")), nested(MAX_DEPTH))

    def test_many_brackets_are_no_depth(self):
        value = [["[" * 300, {}] for _ in range(500)]
        self.assertEqual(json.loads(encode(value, "value")), value)


class Refused(unittest.TestCase):
    def refused(self, value, kind, *parts):
        with self.assertRaises(kind) as caught:
            encode(value, "arguments")
        for part in parts:
            self.assertIn(part, str(caught.exception))
        self.assertIsNone(caught.exception.__cause__)
        self.assertTrue(caught.exception.__context__ is None)

    def test_numbers_json_lacks_are_value_errors_with_their_path(self):
        self.refused({"filter": {"items": [1, 2, float("nan")]}}, ValueError, "arguments.filter.items[2]", "nan")
        self.refused({"a b": float("inf")}, ValueError, "arguments['a b']", "inf")
        self.refused({"a": {float("nan"): 1}}, ValueError, "a key of arguments.a")

    def test_a_cycle_is_a_value_error_with_its_path(self):
        cycle = {"a": []}
        cycle["a"].append(cycle)
        self.refused(cycle, ValueError, "arguments.a[0]", "cycle")

    def test_a_lone_surrogate_is_a_value_error_with_its_path(self):
        self.refused({"a": ["x\udfffy"]}, ValueError, "arguments.a[0]", "\\udfff")
        self.refused({"\ud800": 1}, ValueError, "a key of arguments")

    def test_types_json_does_not_know_are_type_errors_with_path_and_remedy(self):
        self.refused({"a": {1, 2}}, TypeError, "arguments.a is a set", "list(...)")
        self.refused({"a": [b"x"]}, TypeError, "arguments.a[0] is a bytes", "base64")
        self.refused({"d": datetime.date(2026, 1, 1)}, TypeError, "arguments.d is a date", ".isoformat()")
        self.refused({"d": decimal.Decimal(1)}, TypeError, "arguments.d is a Decimal", "str(...)")
        self.refused({"o": object()}, TypeError, "arguments.o is an object")
        self.refused({"o": {(1, 2): 3}}, TypeError, "a key of arguments.o is a tuple")

    def test_the_first_fault_in_reading_order_is_named(self):
        self.refused({"a": 1, "b": float("nan"), "c": {1}}, ValueError, "arguments.b")

    def test_two_keys_that_are_one_in_json_are_refused(self):
        for value in ({1: 1, "1": 2}, {None: 1, "null": 2}, {True: 1, "true": 2}, {"1.5": 1, 1.5: 2}, {-1: 1, "-1": 2}, {1e20: 1, "1e+20": 2}):
            first, second = value
            text = "arguments.a[0].b has the keys %r and %r, which are one key in JSON" % (first, second)
            self.refused({"a": [{"b": value}]}, ValueError, text)
        for value in ({1: 1, "2": 2}, {"1": {1: 2}}, {1: 'a"1":', "x": '"1":'}, {False: 2, 0.5: 1}):
            self.assertEqual(len(json.loads(encode(value, "v"))), len(value))

    def test_deep_nesting_is_a_value_error(self):
        self.refused(nested(MAX_DEPTH + 1), ValueError, "deeper than 100 levels")
        self.refused(nested(100_000), ValueError, "deeper than 100 levels")


if __name__ == "__main__":
    unittest.main()
