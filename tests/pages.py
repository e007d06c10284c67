"""Running the code of a page of the docs, as a reader would.

How a page's code is run, which is what this file does as a script:

- The ``python`` blocks of a page share one namespace, in order, in a process of their own, in an empty folder.
  Warnings are errors. A block may await at its top level, as in ``python -m asyncio``.
- The environment has `SANDBOX_URL`, where a sandbox runs that describes documents rather than reading them, and its key
  in every variable that the page reads with `from_env("NAME")`.
- ``# prints: TEXT`` in a block is a promise: these lines are printed, in this order.
- ``<!-- run-with: OLD => NEW -->`` above a block replaces text before it is run, where a reader needs a real
  address and the test one of its own. `SANDBOX_URL` in NEW stands for its value.
- ``<!-- save-as: NAME -->`` above a block of any language saves it in that folder instead, where Python finds it.
- ``<!-- run -->`` above a ``console`` block runs its lines that begin with ``$``, one after the other. What stands
  below each has to be printed by it, in this order; in a line, ``...`` stands for anything. ``(exit code N)`` as the
  last line is what the command exits with.
- ``<!-- no-run: REASON -->`` above a block leaves it out. Have as few as possible.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

__all__ = ["SANDBOX_KEY", "Block", "blocks_of", "run_apart", "with_code"]

PAGE_SECONDS = 500
SANDBOX_KEY = "sandbox-key"


@attrs.frozen(kw_only=True)
class Block:
    """One fenced block of code of a page."""

    language: str
    line: int
    """Of the opening fence; the first line of a page is 1."""
    code: str
    orders: tuple[str, ...]
    """The comments right above it, without their dashes."""

    @property
    def file(self) -> str | None:
        """The name under which it is saved instead of being run."""
        names = [order.partition(":")[2].strip() for order in self.orders if order.startswith("save-as:")]
        return names[0] if names else None

    @property
    def runs(self) -> bool:
        """Whether something is done with it."""
        asked = self.language == "python" or "run" in self.orders or self.file is not None
        return asked and self.left_out is None

    @property
    def left_out(self) -> str | None:
        """Why it is not run; None if it is."""
        reasons = [order.partition(":")[2].strip() for order in self.orders if order.startswith("no-run")]
        return reasons[0] if reasons else None

    def source(self, sandbox_url: str) -> str:
        """Return the code to run, at the lines where it stands in the page.

        Raises:
            ValueError: a replacement does not fit the block.
        """
        code = self.code
        for order in self.orders:
            if order.startswith("run-with:"):
                old, arrow, new = order.removeprefix("run-with:").strip().partition(" => ")
                if not arrow or old not in code:
                    raise ValueError(f"the block at line {self.line} has nothing to replace: {order!r}")
                code = code.replace(old, new.replace("SANDBOX_URL", sandbox_url))
        return "\n" * self.line + code

    @property
    def promised(self) -> list[str]:
        """The lines that it says it prints."""
        return re.findall(r"# prints: (.*?)\s*$", self.code, re.MULTILINE)


_BLOCK = re.compile(
    r"(?P<orders>(?:^<!--(?:(?!-->).)*-->\n+)*)^```(?P<language>[a-z]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the blocks of a page that are in Python, or have orders."""
    for found in _BLOCK.finditer(text):
        orders = (each.strip() for each in re.findall(r"<!--(.*?)-->", found["orders"], re.DOTALL))
        line = text.count("\n", 0, found.start("code"))
        block = Block(
            language=found["language"],
            line=line,
            code=found["code"],
            orders=tuple(" ".join(each.split()) for each in orders),
        )
        if block.language == "python" or block.runs:
            yield block


# ------------------------------------------------------------------ running a page, in a process of its own


def run_page(page: Path) -> None:
    """Run the blocks of a page in this process.

    Raises:
        Exception: whatever a block raises; the traceback names its line in the page.
        AssertionError: it did not print what it says.
    """
    module = types.ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', page.stem.lower())}")
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(Path.cwd()))
    with asyncio.Runner() as runner:
        for block in blocks_of(page.read_text("utf-8")):
            if not block.runs:
                continue
            if block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.source(os.environ["SANDBOX_URL"]).lstrip("\n"), "utf-8")
            elif block.language == "console":
                _run_console(block)
            else:
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    _run_block(block, page, module, runner)
                _check_printed(block, printed.getvalue())


def _run_block(block: Block, page: Path, module: types.ModuleType, runner: asyncio.Runner) -> None:
    code = compile(
        block.source(os.environ["SANDBOX_URL"]),
        str(page),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    running: Any = eval(code, module.__dict__)
    if running is not None:
        runner.run(running)


def _run_console(block: Block) -> None:
    """Run the commands of a block, and compare what they print with what stands below them."""
    for each in re.split(r"^\$ ", block.source(os.environ["SANDBOX_URL"]), flags=re.MULTILINE)[1:]:
        command, *promised = each.strip().splitlines()
        code = 0
        if promised and (told := re.fullmatch(r"\(exit code (\d+)\)", promised[-1])):
            code = int(told[1])
            promised.pop()
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=PAGE_SECONDS, check=False
        )
        printed = done.stdout + done.stderr
        assert done.returncode == code, (
            f"{command!r} at line {block.line} exits with {done.returncode}:\n{printed}"
        )
        lines = iter(printed.splitlines())
        for line in filter(None, promised):
            pattern = ".*".join(map(re.escape, line.rstrip().split("...")))
            if not any(re.fullmatch(pattern, one.rstrip()) for one in lines):
                message = f"{command!r} at line {block.line} does not print {line!r}, or not then:\n{printed}"
                raise AssertionError(message)


def _check_printed(block: Block, printed: str) -> None:
    lines = iter(printed.splitlines())
    for promised in block.promised:
        if promised not in lines:  # takes the lines up to it
            message = f"the block at line {block.line} does not print {promised!r}, or not then; it prints:\n{printed}"
            raise AssertionError(message)


def run_apart(page: Path, folder: Path, sandbox_url: str) -> subprocess.CompletedProcess[str]:
    """Run a page in a process of its own, in an empty folder."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
        "SANDBOX_URL": sandbox_url,
        **dict.fromkeys(re.findall(r'from_env\("([A-Z_]+)"\)', page.read_text("utf-8")), SANDBOX_KEY),
    }
    return subprocess.run(
        [sys.executable, "-W", "error", __file__, str(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PAGE_SECONDS,
        check=False,
    )


def with_code(pages: Iterable[Path]) -> list[Path]:
    """Return the pages that have code to run."""
    return [page for page in pages if any(each.runs for each in blocks_of(page.read_text("utf-8")))]


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
