#!/usr/bin/env bash
# Measures the whole way of a program: an MCP client of the public Python SDK, the shim, the daemon, a confined worker, a
# server. Needs Linux, Python 3.11 or newer, the release build and, the first time, the network for the SDK.
# docs/performance.md says what the figures are. Arguments go to bench.py: `run.sh --json out.json`, `run.sh --help`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=${PTC_BENCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ptc-bench}
python=$place/bin/python3
if ! [ -x "$python" ] || ! "$python" -c 'import mcp' 2>/dev/null; then
    python3 -m venv "$place"
    "$python" -m pip install -q 'mcp==2.3.0'
fi
exec "$python" tests/benches/bench.py "$@"
