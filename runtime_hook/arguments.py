"""The command lines of mgpu-runtime's launcher and, inside it, of runc's and crun's create and run."""

import os

from oci_specs.refusal import Refusal, quoted

# Of create, run and restore, in runc 1.1 to 1.4 and crun; everything else is a switch.
_WITH_VALUE = frozenset(
    ("bundle", "b", "config", "f", "console-socket", "pid-file", "pidfd-socket", "preserve-fds")
    + ("image-path", "work-path", "manage-cgroups-mode", "empty-ns", "lsm-profile", "lsm-mount-context")
)
_HELP = frozenset(("help", "h", "?", "usage"))


class Launch:
    """What the launcher hands over: its config, and the engine's command line with the runtime in front."""

    __slots__ = ("command", "hook", "log", "socket", "verb")

    def __init__(self, arguments: list[str]) -> None:
        end = arguments.index("--")
        options = dict(option[2:].partition("=")[::2] for option in arguments[:end])
        self.command = arguments[end + 1 :]
        self.socket = options["socket"]
        self.hook = options["hook"]
        self.log = options["log"]
        self.verb = int(options["verb"])

    @property
    def filters(self) -> bool:
        """Whether podman's precreate hook is what was started."""
        return self.command[self.verb] == "precreate"

    @property
    def checkpoints(self) -> bool:
        return self.command[self.verb] == "checkpoint"


class Create:
    """`create`, `run` or `restore` and what follows: container id, absolute bundle, name of the spec's file
    in it.

    folder: the current one of the process that got the arguments, "" for this process.
    """

    __slots__ = ("bundle", "config", "container_id", "restores", "wants_help")

    def __init__(self, words: list[str], folder: str = "") -> None:
        bundle = ""
        config = "config.json"
        names: list[str] = []
        self.wants_help = False
        position = 1
        while position < len(words):
            word = words[position]
            position += 1
            if word == "--":
                names += words[position:]
                break
            if len(word) < 2 or not word.startswith("-"):
                names.append(word)
                continue
            # Go takes -x and --x alike, and the value after "=" or as the next word; the last one counts.
            option, equals, value = word[1:].removeprefix("-").partition("=")
            if option in _WITH_VALUE and not equals:
                value = words[position] if position < len(words) else ""
                position += 1
            if option in ("bundle", "b"):
                bundle = value
            elif option in ("config", "f"):
                config = value
            self.wants_help = self.wants_help or option in _HELP
        # A spec that is looked for in the wrong place would go unchecked.
        if len(names) != 1 and not self.wants_help:
            shown = " ".join(words[1:])
            raise Refusal(
                "bad-arguments", f"{words[0]} names {len(names)} containers: {quoted(shown)}", "name one"
            )
        self.container_id = names[0] if names else ""
        self.restores = words[0] == "restore"
        self.bundle = os.path.abspath(os.path.join(folder, bundle))
        self.config = os.path.join(self.bundle, config)
