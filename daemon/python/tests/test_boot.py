"""The boot text: its size, and that runtime.rs names the same modules in the same order."""

import re
import unittest
from pathlib import Path

from fake_host import MODULES, RUNTIME, boot_text


class Boot(unittest.TestCase):
    def test_the_text_fits_into_one_argument(self):
        self.assertLess(len(boot_text().encode("utf-8")), 120 * 1024)

    def test_the_daemon_embeds_the_same_modules_in_the_same_order(self):
        text = (RUNTIME.parents[1] / "src" / "pool" / "runtime.rs").read_text("utf-8")
        self.assertEqual(re.findall(r'ptc_child/(\w+)\.py', text), [*MODULES, "bootstrap"])

    def test_every_file_is_embedded(self):
        names = {Path(file).stem for file in RUNTIME.glob("*.py")} - {"__init__", "bootstrap"}
        self.assertEqual(names, set(MODULES))


if __name__ == "__main__":
    unittest.main()
