"""The system's clocks. The kernel has them, as each put looks at one."""

from mqstore.storage._kernel import SystemClock as SystemClock
