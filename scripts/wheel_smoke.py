"""Tests an installed wheel, with only the Python that it was installed for.

It needs a checkout for a model of a few kilobytes and for the C example; the package of the
checkout is not used. cibuildwheel runs it for every wheel; scripts/check_wheel.py runs it for the
wheel of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "fixtures" / "models" / "llama-default"
PROMPT = [1, 2, 3]


def main() -> None:
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != ROOT / "scripts"]
    import onward

    package = Path(onward.__file__).parent
    assert ROOT not in package.parents or ".venv" in package.parts, package
    for place in (onward.get_include(), onward.get_lib_dir(), onward.get_cmake_dir()):
        assert package in Path(place).parents, place
    with onward.LLM(MODEL, dtype="f32") as llm:
        ids = list(llm.generate(PROMPT, max_new_tokens=8, temperature=0).token_ids)
    assert ids, ids
    print(f"onward {onward.__version__} in {package}: {ids}")
    if shutil.which("cc") is None:
        print("no C compiler: the example in C is left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        assert c_example(Path(folder)) == ids
    print("the example in C: the same")


def c_example(folder: Path) -> list[int]:
    """Compile the C example; returns the ids that it generates from a pack of the model."""
    import onward

    pack, program = folder / "model.onward", folder / "generate"
    command = [sys.executable, "-m", "onward", "pack", MODEL, "-o", pack, "--dtype", "f32"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    source = ROOT / "examples" / "native" / "c" / "generate.c"
    lib = onward.get_lib_dir()
    flags = [f"-I{onward.get_include()}", f"-L{lib}", "-lonward", f"-Wl,-rpath,{lib}"]
    subprocess.run(["cc", "-std=c99", source, "-o", program, *flags], check=True)
    words = [str(i) for i in PROMPT]
    run = subprocess.run([program, pack, "-n", "8", *words], check=True, stdout=subprocess.PIPE)
    return [int(line) for line in run.stdout.split()]


if __name__ == "__main__":
    main()
