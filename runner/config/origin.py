"""Where a composed configuration came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from runner.config import devices
from runner.model import Op
from runner.op.targets import Search

NOT_RESUMED = "a profile of a step is not carried on; start it again"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a composed configuration came from, for messages and for the record."""

    search: Search
    op_file: str = ""
    ops: tuple[str, ...] = ()  # that there are
    experiment: str = ""
    command: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # absolute paths of what was composed
    built: dict[str, Any] = dataclasses.field(default_factory=dict)  # ops of one sweep, by content
    resolve: Callable[[str], str] = devices.resolve  # which device a text is
    op_named: Callable[[str], tuple[Op | None, list[str]]] = lambda name: (None, [NOT_RESUMED])

    def typed(self, key: str) -> str:
        """The word of the command line that set a key, or what it is below; empty when none did."""
        for word in reversed(self.command):
            own = word.lstrip("+~").partition("=")[0]
            if own and "." in own and (key == own or key.startswith((f"{own}.", f"{own}["))):
                return word
        return ""
