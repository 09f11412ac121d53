"""The reader and the channel against streams in any pieces: right frames, wrong ones, garbage; fixed seeds."""

import asyncio
import json
import random
import socket
import struct
import threading
import unittest

import fake_host  # noqa: F401  (puts the runtime on the path)
from ptc_child import channel, frames

TEXTS = ["", "plain", "grüße €", "\U0001f600", "\x00\x1b[2J\r\n", "\u2028\u202e\ufeff", '"\\/', "x" * 5000]
NUMBERS = [0, -1, 2**53 + 1, 2**100, -(10**50), 0.0, -0.0, 1.5, 1e308, 5e-324, True, False, None]


def value(rng, depth=4):
    kind = rng.randrange(6 if depth else 4)
    if kind < 2:
        return rng.choice(TEXTS)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind == 4:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS) + str(at): value(rng, depth - 1) for at in range(rng.randrange(4))}


def pieces(rng, data, most=50):
    at = 0
    while at < len(data):
        end = at + rng.randint(1, most)
        yield data[at:end]
        at = end


class Ends:
    """A pair of sockets with a reader at one end."""

    def __enter__(self):
        self.ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.reader = channel.Reader(self.theirs.fileno())
        return self

    def __exit__(self, *_error):
        self.ours.close()
        self.theirs.close()

    def feed(self, rng, data, most=50):
        """Every frame of `data` as (kind, value), read while it comes."""
        got = []
        for piece in pieces(rng, data, most):
            self.ours.sendall(piece)
            while (frame := self.reader.next()) is not None:
                got.append((frame[0], frames.loads(frame[1])))
        return got


def right(rng):
    kind = rng.choice("RrX")
    body = {"id": rng.randrange(1, 2**63), "ok": True, "value": value(rng)}
    return (kind, body), frames.encode(kind.encode(), frames.dumps(body).encode())


class SplitFrames(unittest.TestCase):
    def test_frames_come_whole_from_any_pieces(self):
        for seed in range(60):
            rng = random.Random(seed)
            sent = [right(rng) for _ in range(rng.randint(1, 8))]
            with self.subTest(seed=seed), Ends() as ends:
                got = ends.feed(rng, b"".join(frame for _, frame in sent), rng.choice([1, 7, 4000]))
                self.assertEqual(repr(got), repr([frame for frame, _ in sent]))

    def test_a_body_reads_as_python_reads_it(self):
        for seed in range(300):
            rng = random.Random(seed)
            body = value(rng)
            for ascii_only in (True, False):
                text = json.dumps(body, ensure_ascii=ascii_only)
                with self.subTest(seed=seed, text=text):
                    self.assertEqual(repr(frames.loads(text.encode())), repr(json.loads(text)))
            self.assertEqual(frames.dumps(body), json.dumps(body, ensure_ascii=False, separators=(",", ":")))

    def test_garbage_is_refused_or_waited_for_and_never_anything_else(self):
        kinds = {"frame": 0, "refused": 0, "waits": 0}
        for seed in range(1500):
            rng = random.Random(seed)
            data = bytearray(right(rng)[1])
            for _ in range(rng.randint(1, 4)):
                change = rng.randrange(4)
                at = rng.randrange(len(data) + 1)
                if change == 0:
                    data[at : at + 1] = bytes([rng.randrange(256)])
                elif change == 1:
                    del data[at : at + rng.randrange(8)]
                elif change == 2:
                    data[at:at] = rng.randbytes(rng.randrange(8))
                else:
                    data[:4] = struct.pack("<I", max(len(data) - 4, 0))
            with self.subTest(seed=seed), Ends() as ends:
                try:
                    got = ends.feed(rng, bytes(data))
                except frames.FrameError:
                    kinds["refused"] += 1
                    continue
                except RecursionError:
                    self.fail("a short body is no deep one")
                kinds["frame" if got else "waits"] += 1
        # Each way out was taken, so that the test cannot pass by taking one.
        self.assertGreater(min(kinds.values()), 20, kinds)

    def test_no_body_of_bytes_is_anything_but_a_value_or_a_refusal(self):
        for seed in range(3000):
            rng = random.Random(seed)
            body = bytearray(frames.dumps(value(rng)).encode())
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(body) + 1)
                body[at : at + rng.randrange(3)] = rng.choice([b"{", b"]", b'"', b"\\", b"\xff", b",", b"1e999", b"NaN"])
            with self.subTest(seed=seed, body=bytes(body)):
                try:
                    frames.loads(bytes(body))
                except frames.FrameError:
                    continue

    def test_an_announced_length_over_the_cap_takes_no_memory(self):
        for length in (0, frames.MAX_FRAME_BYTES + 1, 2**32 - 1):
            with self.subTest(length=length), Ends() as ends:
                ends.ours.sendall(struct.pack("<IB", length, ord("r")))
                with self.assertRaises(frames.FrameError):
                    ends.reader.next()

    def test_the_end_of_the_stream_inside_a_frame_is_its_end(self):
        frame = frames.encode(b"r", b'{"id":1,"ok":true,"value":[1,2,3]}')
        for cut in range(len(frame)):
            with self.subTest(cut=cut), Ends() as ends:
                ends.ours.sendall(frame[:cut])
                ends.ours.shutdown(socket.SHUT_WR)
                with self.assertRaises(EOFError):
                    ends.reader.next()


class SplitChannel(unittest.TestCase):
    def test_frames_of_many_threads_do_not_mix(self):
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        # A small buffer, so that writes are cut and wait for room.
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        end = channel.Channel(theirs.fileno())
        end.open()
        bodies = {name: [b'{"text":"%s %d %s"}' % (name, at, b"." * (at * 37 % 9000)) for at in range(60)] for name in (b"a", b"b", b"c")}
        threads = [
            threading.Thread(target=lambda name=name: [end.send(b"O", body) for body in bodies[name]]) for name in bodies
        ]
        for thread in threads:
            thread.start()
        want = sum(len(frames.encode(b"O", body)) for each in bodies.values() for body in each)
        data = bytearray()
        ours.settimeout(30)
        while len(data) < want:
            data += ours.recv(random.Random(len(data)).randint(1, 3000))
        for thread in threads:
            thread.join(30)
        got = {name: [] for name in bodies}
        while data:
            length, kind = struct.unpack_from("<IB", data)
            body = bytes(data[5 : length + 4])
            self.assertEqual(kind, ord("O"))
            got[body.partition(b'"text":"')[2][:1]].append(body)
            del data[: length + 4]
        self.assertEqual(got, bodies)

    def test_answers_in_any_order_and_any_pieces_reach_their_calls(self):
        for seed in range(20):
            with self.subTest(seed=seed):
                asyncio.run(self._answers(random.Random(seed)))

    async def _answers(self, rng):
        ours, theirs = socket.socketpair()
        try:
            end = channel.Channel(theirs.fileno())
            end.open()
            end.on_request = lambda: None
            end.on_result = lambda tool, message: (message["ok"], message.get("value"))
            values = [value(rng) for _ in range(12)]
            futures = [end.request(b"C", b'"tool":"t","arguments":{}}', "t") for _ in values]
            data = ours.recv(1 << 20)
            ids = []
            while data:
                length, _ = struct.unpack_from("<IB", data)
                ids.append(json.loads(data[5 : length + 4])["id"])
                data = data[length + 4 :]
            self.assertEqual(len(set(ids)), len(values))
            answers = list(zip(ids, values))
            rng.shuffle(answers)
            # Answers to nobody, and one given twice, change nothing.
            answers += [(10**9, "stray"), answers[0]]
            stream = b"".join(
                frames.encode(b"r", frames.dumps({"id": number, "ok": True, "value": each}).encode())
                for number, each in answers
            )
            for piece in pieces(rng, stream, 200):
                ours.sendall(piece)
                end.pump()
            got = [await asyncio.wait_for(future, 30) for future in futures]
            self.assertEqual(repr(got), repr(values))
        finally:
            ours.close()
            theirs.close()


if __name__ == "__main__":
    unittest.main()
