"""Turns frames of the channel into bytes and back.

A frame is a little-endian u32 length (kind byte and body), the kind byte and a
JSON body in UTF-8. What the program may replace (json, struct, builtins) is
bound here once, so that it can only break itself.
"""

from json import JSONDecoder
from json.encoder import c_make_encoder, encode_basestring
from struct import Struct
from sys import set_int_max_str_digits

HEADER = Struct("<IB")
PROTOCOL = 1
MAX_FRAME_BYTES = 64 * 1024 * 1024
TO_WORKER = frozenset(b"RrX")
FROM_WORKER = frozenset(b"HCQOEWD")

_scan = JSONDecoder().scan_once


class FrameError(Exception):
    """The other side sent what is no frame."""


def quote(text):
    """The JSON text of a str, lone surrogates left as they are."""
    return encode_basestring(text)


def dumps(value):
    """The JSON text of a value; raises what the C encoder raises."""
    encode = c_make_encoder({}, _refuse, encode_basestring, None, ":", ",", False, False, False)
    return "".join(encode(value, 0))


def loads(body):
    """The value of a JSON body, whole numbers of any length included."""
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise FrameError("a body is not UTF-8") from error
    try:
        value, end = _scan(text, 0)
    except StopIteration as error:
        raise FrameError("a body is not JSON") from error
    except ValueError:
        # The program may have lowered the limit on digits: it is for its own use only.
        set_int_max_str_digits(0)
        try:
            value, end = _scan(text, 0)
        except (StopIteration, ValueError) as error:
            raise FrameError("a body is not JSON") from error
    if end != len(text):
        raise FrameError("something follows the JSON of a body")
    return value


def encode(kind, body):
    """One frame; `kind` is its letter as bytes, `body` the JSON text as bytes."""
    return HEADER.pack(len(body) + 1, kind[0]) + body


def check_header(length, kind, kinds=TO_WORKER):
    """Raises FrameError for a header no frame can have."""
    if length < 1 or length > MAX_FRAME_BYTES:
        raise FrameError("a frame has the length %d" % length)
    if kind not in kinds:
        raise FrameError("a frame has the unknown kind %d" % kind)


def decode(data, kinds=TO_WORKER):
    """(kind letter, body value) of exactly one frame."""
    if len(data) < HEADER.size:
        raise FrameError("a frame is cut in its header")
    length, kind = HEADER.unpack_from(data)
    check_header(length, kind, kinds)
    if len(data) != length + HEADER.size - 1:
        raise FrameError("a frame has %d bytes and announces %d" % (len(data), length + 4))
    return chr(kind), loads(data[HEADER.size :])


def _refuse(value):
    raise TypeError("not a JSON value")


