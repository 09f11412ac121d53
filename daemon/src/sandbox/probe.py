"""Tells, as one JSON object, what this interpreter is, where it lies, what it has mapped."""

import importlib
import importlib.util
import json
import os
import sys
import sysconfig

# What can only be imported with a display, or exists for CPython's own tests.
LEFT_OUT = ("_test", "_ctypes_test", "xx", "_xx", "_tkinter")


def extension_modules():
    for folder in sys.path:
        if os.path.basename(folder) != "lib-dynload" or not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            module = name.split(".")[0]
            if ".so" in name and not module.startswith(LEFT_OUT):
                yield module


def load_everything():
    for module in [*extension_modules(), "asyncio", "ssl", "ctypes", "sqlite3", "zoneinfo"]:
        try:
            importlib.import_module(module)
        except BaseException:
            pass
    try:
        # A thread that ends lets the C library load this one.
        import ctypes

        ctypes.CDLL("libgcc_s.so.1")
    except BaseException:
        pass


def loaded_images():
    """What the loader of macOS has mapped, by the names it was given."""
    import ctypes

    system = ctypes.CDLL(None)
    system._dyld_get_image_name.restype = ctypes.c_char_p
    names = (system._dyld_get_image_name(number) for number in range(system._dyld_image_count()))
    return sorted({os.fsdecode(name) for name in names if name})


def mapped_files():
    if sys.platform == "darwin":
        return loaded_images()
    found = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                parts = line.rstrip("\n").split(None, 5)
                if len(parts) == 6 and parts[5].startswith("/") and not parts[5].endswith(" (deleted)"):
                    found.add(parts[5])
    except OSError:
        pass
    return sorted(found)


def stdlib_folders():
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders += [folder for folder in sys.path if folder]
    return sorted({os.path.realpath(folder) for folder in folders if folder and os.path.exists(folder)})


def time_zones():
    try:
        import zoneinfo

        return [folder for folder in zoneinfo.TZPATH if os.path.isdir(folder)]
    except BaseException:
        return []


def loader():
    """The file that the kernel starts in the interpreter's place, under the name the interpreter has for it."""
    import struct

    try:
        with open(os.path.realpath(sys.executable), "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                return None
            offset, size, count = struct.unpack_from("<Q", head, 32) + struct.unpack_from("<HH", head, 54)
            for number in range(count):
                file.seek(offset + number * size)
                kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", file.read(size))
                if kind == 3:
                    file.seek(start)
                    return file.read(length).rstrip(b"\0").decode()
    except (OSError, ValueError, struct.error):
        pass
    return None


load_everything()
json.dump(
    {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "stdlib": stdlib_folders(),
        "mapped": mapped_files(),
        "time_zones": time_zones(),
        "loader": loader(),
        "compiled": os.path.exists(importlib.util.cache_from_source(os.__file__)),
    },
    sys.stdout,
)
