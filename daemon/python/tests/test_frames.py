"""The codec against the golden frames, which the daemon's codec reads too."""

import json
import struct
import unittest
from pathlib import Path

import fake_host  # noqa: F401  (puts the runtime on the path)
from ptc_child import frames

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "frames"


def rows(name):
    with open(GOLDEN / name, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class GoldenFrames(unittest.TestCase):
    def test_frames_to_the_worker_decode_to_their_body(self):
        good = [row for row in rows("to_worker.jsonl") if not row.get("error")]
        for row in good:
            self.assertEqual(frames.decode(bytes.fromhex(row["hex"])), (row["kind"], row["body"]))
        self.assertEqual({row["kind"] for row in good}, set("RrX"))

    def test_whole_numbers_decode_with_every_digit(self):
        number = 10**6000 + 7
        frame = frames.encode(b"r", b'{"id":1,"ok":true,"value":%d}' % number)
        self.assertEqual(frames.decode(frame)[1]["value"], number)

    def test_malformed_frames_to_the_worker_are_refused(self):
        bad = [row for row in rows("to_worker.jsonl") if row.get("error")]
        self.assertGreater(len(bad), 10)
        for row in bad:
            with self.subTest(row["note"]), self.assertRaises(frames.FrameError):
                frames.decode(bytes.fromhex(row["hex"]))

    def test_bodies_from_the_worker_encode_to_their_bytes(self):
        good = [row for row in rows("from_worker.jsonl") if not row.get("error")]
        for row in good:
            body = frames.dumps(row["body"]).encode("utf-8")
            self.assertEqual(frames.encode(row["kind"].encode(), body).hex(), row["hex"], row)
        self.assertEqual({row["kind"] for row in good}, {chr(kind) for kind in frames.FROM_WORKER})

    def test_every_row_of_the_other_direction_says_so(self):
        for name in ("to_worker", "from_worker"):
            self.assertEqual({row["direction"] for row in rows(name + ".jsonl")}, {name})


class Codec(unittest.TestCase):
    def test_a_frame_is_length_kind_body(self):
        self.assertEqual(frames.encode(b"X", b"{}"), struct.pack("<I", 3) + b"X{}")

    def test_nan_is_never_written(self):
        for value in (float("nan"), float("inf"), [float("-inf")]):
            with self.assertRaises(ValueError):
                frames.dumps(value)


if __name__ == "__main__":
    unittest.main()
