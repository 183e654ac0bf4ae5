"""A property under atheris, with libFuzzer's options: `python -m tests.fuzz.guided PROPERTY
-max_total_time=10 …`
"""

import sys

import atheris

# What is imported in here tells where it went; the tests' own parts and other people's packages do not.
with atheris.instrument_imports(include=["oci_specs", "runtime_hook", "native_sched"]):
    from tests.fuzz import properties


def main() -> None:
    name = sys.argv.pop(1)
    one = properties.PROPERTIES[name].hypothesis.fuzz_one_input
    atheris.Setup(sys.argv, lambda data: one(bytes(data)) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
