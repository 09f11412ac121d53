"""Names the modules a worker loads before its program arrives.

A module that is not named here still imports from the standard library later,
but an extension module may not: some tiers forbid new native code after hello.
"""

MODULES = (
    "abc asyncio base64 bisect calendar collections collections.abc contextlib contextvars copy csv "
    "dataclasses datetime decimal difflib enum fractions functools hashlib heapq html io itertools json "
    "linecache logging math operator os os.path pathlib pprint queue random re shutil statistics string "
    "struct sys tempfile textwrap threading time traceback types typing unicodedata urllib.parse uuid "
    "warnings weakref zlib zoneinfo"
).split()

# Native parts of the standard library whose Python side loads when a program asks for it.
EXTENSIONS = (
    "_asyncio _bisect _blake2 _bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw "
    "_contextvars _csv _ctypes _datetime _decimal _elementtree _hashlib _heapq _json _lsprof _lzma _md5 "
    "_multibytecodec _multiprocessing _opcode _pickle _posixshmem _queue _random _sha1 _sha2 _sha256 "
    "_sha3 _sha512 _socket _sqlite3 _ssl _statistics _struct _uuid _zoneinfo array binascii cmath fcntl "
    "grp math mmap pyexpat resource select termios unicodedata zlib"
).split()


def load():
    """Imports what this interpreter has of the lists; what it lacks is left out."""
    for name in MODULES + EXTENSIONS:
        try:
            __import__(name)
        except ImportError:
            continue
