"""The five changes that a newcomer makes, place by place, as CONTRIBUTING.md tells them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support import commands

DRIVER = "620.10.01"


@dataclass(frozen=True)
class Place:
    """step: how a step of the page names it. named: what a test prints where it is forgotten; "" for the
    place without which there is no change.
    """

    step: str
    apply: Callable[[Path], None]
    named: str


@dataclass(frozen=True)
class Change:
    """page: where its steps are, a heading of CONTRIBUTING.md. checks: the tests that judge it."""

    page: str
    checks: tuple[str, ...]
    places: tuple[Place, ...]


def edit(name: str, before: str, after: str) -> Callable[[Path], None]:
    """Replaces a text that is there once."""

    def apply(tree: Path) -> None:
        text = (tree / name).read_text()
        assert text.count(before) == 1, f"{name}: {before!r}"
        (tree / name).write_text(text.replace(before, after))

    return apply


def append(name: str, text: str) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        path = tree / name
        path.write_text((path.read_text() if path.exists() else "") + text)

    return apply


def run(*modules: str) -> Callable[[Path], None]:
    """Writes anew what is generated."""

    def apply(tree: Path) -> None:
        for module in modules:
            commands.run(sys.executable, "-m", *module.split(), cwd=tree)

    return apply


def both(*steps: Callable[[Path], None]) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        for step in steps:
            step(tree)

    return apply


RM_PAGE = Place(
    "pages", run("tests.support.rm_interface"), r"test_page_is_what_the_file_says|rm-interface\.md"
)
ROWS = (
    "tests/abi/test_parity.py::test_rows_are_the_headers",
    "tests/abi/test_coverage.py::test_page_is_what_rows_and_facts_say",
    "tests/abi/test_coverage.py::test_every_refusal_has_a_reason_and_no_reason_is_left_over",
    "tests/native/boundary/rm/test_rm_table.py::test_page_is_what_the_file_says",
)


def new_driver(tree: Path) -> None:
    """What `python -m tools.abi add TREE` leaves, of a driver that is as the newest known one."""
    script = (
        "from dataclasses import replace; from tools.abi import store; known = store.load(); "
        f"known.add(replace(known.newest, version='{DRIVER}', source='a scratch copy')); store.save(known)"
    )
    commands.run(sys.executable, "-c", script, cwd=tree)


BRANCH = Change(
    "A driver branch",
    (
        *ROWS,
        "tests/abi/test_parity.py::test_every_branch_of_the_table_has_facts",
        "tests/abi/test_parity.py::test_newest_known_driver_is_served",
        "tests/abi/test_parity.py::test_readme_names_the_oldest_and_the_newest_branch",
    ),
    (
        Place("tools.abi add TREE", new_driver, r"620"),
        Place(
            "`interface.def`",
            edit(
                "native_sched/nvidia/rm/interface.def",
                "BRANCH(615, 71)\n",
                "BRANCH(615, 71)\nBRANCH(620, 10)\n",
            ),
            "620",
        ),
        Place("README", edit("README.md", "535.86 to 615", "535.86 to 620"), "README"),
        RM_PAGE,
    ),
)

CONTROL = Change(
    "An RM control",
    ROWS,
    (
        Place(
            "`interface.def`",
            edit(
                "native_sched/nvidia/rm/interface.def",
                "CONTROL(NVA06C_CTRL_CMD_GET_INFO, 0xa06c0106, 4, PASSED)\n",
                "CONTROL(NVA06C_CTRL_CMD_GET_INFO, 0xa06c0106, 4, PASSED)\n"
                "CONTROL(NV2080_CTRL_CMD_BIOS_GET_POST_TIME, 0x20800809, 8, PASSED, UNTIL(610, 43))\n",
            ),
            "",
        ),
        RM_PAGE,
    ),
)

ESCAPE = Change(
    "An escape, or a command of nvidia-uvm",
    (
        *ROWS,
        "tests/abi/test_parity.py::test_decoded_structs_and_constants_are_the_headers",
        "tests/abi/test_parity.py::test_every_struct_of_ours_says_what_it_is",
        "tests/abi/test_parity.py::test_every_driver_says_where_decoded_fields_are",
        "tests/unit/runtime_hook/test_handlers.py",
    ),
    (
        Place(
            "`interface.def`",
            edit(
                "native_sched/nvidia/rm/interface.def",
                "ESCAPE(NV_ESC_RM_BIND_CONTEXT_DMA, 0x59, 16, RM_NO_STATUS, REFUSED)",
                "ESCAPE(NV_ESC_RM_BIND_CONTEXT_DMA, 0x59, 16, 0xc, MEDIATED(mediate_bind), EXECUTED, UNTIL(615, 71))",
            ),
            "",
        ),
        Place(
            "`rm_abi.h`",
            edit(
                "native_sched/nvidia/rm/rm_abi.h",
                "enum { RM_CONTROL_NUMBER_MASK",
                "struct rm_bind { /* NVOS49, 16 */\n    uint32_t client, channel, context_dma, status;\n};\n"
                "enum { RM_CONTROL_NUMBER_MASK",
            ),
            "rm_bind",
        ),
        Place(
            "`decoded.tsv`",
            append(
                "native_sched/nvidia/rm/facts/decoded.tsv",
                "".join(
                    f"rm_bind\t{ours}\tNVOS49_PARAMETERS\t{theirs}\t{how}\n"
                    for ours, theirs, how in (
                        ("(size)", "(size)", "whole"),
                        ("client", "hClient", "-"),
                        ("channel", "hChannel", "-"),
                        ("context_dma", "hCtxDma", "-"),
                        ("status", "status", "-"),
                    )
                ),
            ),
            "rm_bind",
        ),
        Place(
            "`field.tsv`",
            append(
                "native_sched/nvidia/rm/facts/field.tsv",
                "".join(
                    f"NVOS49_PARAMETERS\t{name}\t{at}\t{size}\t535.86.05\t-\n"
                    for name, at, size in (
                        ("(size)", "-", 16),
                        ("hClient", "0x0", 4),
                        ("hChannel", "0x4", 4),
                        ("hCtxDma", "0x8", 4),
                        ("status", "0xc", 4),
                    )
                ),
            ),
            "NVOS49",
        ),
        Place(
            "`handlers.h`",
            edit(
                "native_sched/nvidia/boundary/rm/handlers.h",
                "struct answer mediate_share(struct call *c);\n",
                "struct answer mediate_share(struct call *c);\nstruct answer mediate_bind(struct call *c);\n",
            ),
            r"mediate_bind.*handlers\.h",
        ),
        Place(
            "handler",
            append(
                "native_sched/nvidia/boundary/rm/dup.c",
                "\nstruct answer mediate_bind(struct call *c)\n{\n    (void)c;\n    return answered(1);\n}\n",
            ),
            r"mediate_bind.*no handler",
        ),
        Place(
            "`escapes.c`",
            append("sim/card/escapes.c", "/* NV_ESC_RM_BIND_CONTEXT_DMA */\n"),
            r"NV_ESC_RM_BIND_CONTEXT_DMA.*sim/card",
        ),
        RM_PAGE,
    ),
)

KEY = "example.com/gpu-mib"
VOCABULARY = Change(
    "A vocabulary",
    (
        "tests/unit/oci_specs/test_vocabulary.py::test_every_key_is_in_the_meanings",
        "tests/unit/repository/test_docs_commands.py::test_readme_names_every_key",
        "tests/unit/oci_specs/test_parse_refusals.py::test_every_amount_is_refused_in_a_line",
        "tests/cluster/manifests/test_manifests.py::test_every_vocabulary_has_an_example",
        "tests/cluster/manifests/test_manifests.py::test_scheduler_is_asked_about_every_resource_that_a_node_offers",
        "tests/cluster/node/test_resources.py::test_every_annotation_is_a_key_that_mgpud_reads",
        "tests/cluster/node/test_resources.py::test_every_amount_is_a_resource",
        "tests/cluster/admission/test_admission_manifests.py::test_committed_file_is_what_the_code_writes",
        "tests/cluster/admission/test_admission_manifests.py::test_every_key_of_a_vendor_that_asks_is_of_a_family",
        "tests/cluster/admission/test_admission_docs.py::test_names_are_on_the_page",
        "tests/cluster/manifests/test_chart.py::test_committed_templates_are_what_the_code_writes",
    ),
    (
        Place(
            "`vocabulary.py`",
            edit(
                "oci_specs/vocabulary.py",
                '    Key(MEMORY, MEMORY_MIB, ANNOTATION, "mib"),\n',
                '    Key(MEMORY, MEMORY_MIB, ANNOTATION, "mib"),\n'
                f'    Key(MEMORY, "{KEY}", ANNOTATION, "mib"),\n',
            ),
            KEY,
        ),
        Place(
            "`test_vocabulary.py`",
            edit(
                "tests/unit/oci_specs/test_vocabulary.py",
                '    ({"mgpu.dev/memory-mib": "1000"}, "memory", Memory(mib=1000)),\n',
                '    ({"mgpu.dev/memory-mib": "1000"}, "memory", Memory(mib=1000)),\n'
                f'    ({{"{KEY}": "1000"}}, "memory", Memory(mib=1000)),\n',
            ),
            f"every_key_is_in_the_meanings(.|\n)*{KEY}",
        ),
        Place(
            "README", edit("README.md", "`mgpu.dev/memory-mib`", f"`mgpu.dev/memory-mib`, `{KEY}`"), "README"
        ),
        Place(
            "`refusals.py`",
            both(
                edit(
                    "tests/refusals.py",
                    '    "memory": "mgpu.dev/memory-mib",\n',
                    f'    "memory": "mgpu.dev/memory-mib",\n    "example": "{KEY}",\n',
                ),
                edit(
                    "tests/refusals.py",
                    "\nREFUSALS = [\n",
                    '\nREFUSALS = [\n    _annotated("example", "none", example="none"),\n',
                ),
            ),
            f"is_refused_in_a_line(.|\n)*{KEY}",
        ),
        Place(
            "`table.py`",
            edit(
                "cluster/resources/table.py",
                "    _status(MEMORY_MIB, _sum(_mib)),\n",
                f'    _status(MEMORY_MIB, _sum(_mib)),\n    _status("{KEY}", _sum(_mib)),\n',
            ),
            f"every_amount_is_a_resource(.|\n)*{KEY}",
        ),
        Place(
            "`scheduler.yaml`",
            edit(
                "cluster/manifests/scheduler.yaml",
                "          - name: mgpu.dev/memory-mib\n",
                "          - name: mgpu.dev/memory-mib\n            ignoredByScheduler: true\n"
                f"          - name: {KEY}\n",
            ),
            "scheduler_is_asked_about_every_resource",
        ),
        Place(
            "`names.py`",
            edit(
                "cluster/admission/names.py",
                '    "mgpu.dev/",\n',
                '    "mgpu.dev/",\n    "example.com/gpu-",\n',
            ),
            "is_of_a_family",
        ),
        Place(
            "`cluster.md`",
            append("docs/cluster.md", "`example.com/gpu-`\n"),
            r"names_are_on_the_page\[example\.com",
        ),
        Place(
            "cluster/manifests/examples",
            append(
                "cluster/manifests/examples/example.yaml",
                f'metadata:\n  annotations:\n    {KEY}: "4096"\n',
            ),
            "every_vocabulary_has_an_example",
        ),
        Place(
            "manifests",
            run("cluster.admission.manifests", "cluster.chart"),
            r"python -m cluster\.admission\.manifests",
        ),
    ),
)

POLICY = Change(
    "A policy",
    (
        "tests/unit/oci_specs/test_policies.py",
        "tests/unit/mgpu_cli/test_man.py::test_page_is_what_the_commands_say",
    ),
    (
        Place(
            "`policy_fixed.c`",
            append(
                "native_sched/core/policy_equal.c",
                '#include "policy.h"\n\nstatic uint32_t weight(const struct entity *e)\n'
                "{\n    (void)e;\n    return 1;\n}\n\n"
                "const struct sched_policy policy_equal = {.weight = weight};\n",
            ),
            "policy_equal",
        ),
        Place(
            "`meson.build`",
            edit(
                "native_sched/meson.build",
                "  'core/policy_fixed.c',\n",
                "  'core/policy_equal.c',\n  'core/policy_fixed.c',\n",
            ),
            r"policy_equal\.c.*meson\.build",
        ),
        Place(
            "`policies.def`",
            append("native_sched/core/policies.def", 'POLICY(SCHED_EQUAL, policy_equal, "equal-share")\n'),
            "policy_equal",
        ),
        Place(
            "`vocabulary.py`",
            edit(
                "oci_specs/vocabulary.py",
                "POLICIES = (NATIVE_BURST_SHARE, FIXED_SHARE, GUARANTEED_BURST_SHARE)",
                'POLICIES = (NATIVE_BURST_SHARE, FIXED_SHARE, GUARANTEED_BURST_SHARE, "equal-share")',
            ),
            r"vocabulary\.POLICIES",
        ),
        Place(
            "`policy.schema.json`",
            edit(
                "oci_specs/schemas/policy.schema.json",
                '"guaranteed-burst-share"]',
                '"guaranteed-burst-share", "equal-share"]',
            ),
            r"schemas\.load\(\"policy\"\)",
        ),
        Place(
            "scheduler.md",
            append("docs/scheduler.md", "`equal-share`\n"),
            r"equal-share.*docs/scheduler\.md",
        ),
        Place("README", append("README.md", "`equal-share`\n"), r"equal-share.*README\.md"),
        Place(
            "`test_sched_policies.py`",
            append("tests/native/core/test_sched_policies.py", "# EQUAL\n"),
            r"EQUAL.*test_sched_policies\.py",
        ),
        Place("manual page", run("tools.man"), r"test_page_is_what_the_commands_say"),
    ),
)

CHANGES = {
    "branch": BRANCH,
    "control": CONTROL,
    "escape": ESCAPE,
    "vocabulary": VOCABULARY,
    "policy": POLICY,
}
