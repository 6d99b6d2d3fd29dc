"""The memory that a process may use, from system files that each test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import onward.machine.memory
from onward.errors import InvalidArgument
from onward.lab.bench.measuring import require_memory
from onward.machine.memory import available_memory_bytes, memory_bytes, resident_bytes

GIB = 2**30
MEMINFO = "MemTotal:       33554432 kB\nMemFree:          100 kB\nMemAvailable:   25165824 kB\n"


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def group_v2(path: str, limit: object, usage: int, inactive: int = 0) -> dict[str, str]:
    folder = f"sys/fs/cgroup/{path}"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{usage}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {inactive}\nactive_file 7\n",
    }


def group_v1(path: str, limit: int, usage: int, inactive: int = 0) -> dict[str, str]:
    folder = f"sys/fs/cgroup/memory/{path}"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{usage}\n",
        f"{folder}/memory.stat": f"inactive_file 1\ntotal_inactive_file {inactive}\n",
    }


def test_without_control_groups_it_is_the_memory_of_the_kernel(tmp_path: Path) -> None:
    root = system(tmp_path, {"proc/meminfo": MEMINFO})
    assert available_memory_bytes(root) == 24 * GIB
    assert memory_bytes(root) == {"total": 32 * GIB, "available": 24 * GIB}


def test_the_memory_is_unknown_without_system_files(tmp_path: Path) -> None:
    assert available_memory_bytes(tmp_path) is None
    assert memory_bytes(tmp_path) == {"total": None, "available": None}
    assert resident_bytes(tmp_path) is None


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (group_v2("a/b", 8 * GIB, 3 * GIB), 5 * GIB),
        (group_v2("a/b", 8 * GIB, 3 * GIB, 1 * GIB), 6 * GIB),  # pages of files can be dropped
        (group_v2("a/b", "max", 3 * GIB), 24 * GIB),
        (group_v2("a/b", 100 * GIB, 3 * GIB), 24 * GIB),
        (group_v2("a/b", 2 * GIB, 3 * GIB), 0),
        (group_v2("a/b", 2 * GIB, GIB, 3 * GIB), 2 * GIB),
        # The parent group has less memory left, or its parent.
        (group_v2("a/b", 8 * GIB, GIB) | group_v2("a", 9 * GIB, 7 * GIB), 2 * GIB),
        (group_v2("a/b", "max", GIB) | group_v2("", 4 * GIB, GIB), 3 * GIB),
        # The limit of a sibling group does not matter.
        (group_v2("a/c", GIB, 0), 24 * GIB),
        ({"sys/fs/cgroup/a/b/memory.max": "1000\n"}, 24 * GIB),  # and no memory.current
    ],
)
def test_control_groups_version_2(tmp_path: Path, groups: dict[str, str], expected: int) -> None:
    root = system(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a/b\n", **groups})
    assert available_memory_bytes(root) == expected


def test_control_groups_without_meminfo(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", **group_v2("", 4 * GIB, GIB)}
    assert available_memory_bytes(system(tmp_path, files)) == 3 * GIB


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (group_v1("docker/x", 8 * GIB, 3 * GIB), 5 * GIB),
        (group_v1("docker/x", 8 * GIB, 3 * GIB, GIB), 6 * GIB),
        (group_v1("docker/x", 9223372036854771712, 3 * GIB), 24 * GIB),  # no limit
        (group_v1("docker/x", 8 * GIB, GIB) | group_v1("docker", 4 * GIB, GIB), 3 * GIB),
        # Inside a container its own group is the root of the mounted tree.
        (group_v1("", 6 * GIB, 2 * GIB), 4 * GIB),
    ],
)
def test_control_groups_version_1(tmp_path: Path, groups: dict[str, str], expected: int) -> None:
    lines = "11:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/y\n0::/\n"
    root = system(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": lines, **groups})
    assert available_memory_bytes(root) == expected


def test_bench_refuses_a_model_beyond_the_limit_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onward.machine.memory, "available_memory_bytes", lambda root: GIB)
    with pytest.raises(InvalidArgument, match=r"^x: needs 1\.5 GiB .* the 1\.0 GiB of memory"):
        require_memory("x", cache=GIB)
    require_memory("x", cache=GIB // 2)


def test_a_path_that_leaves_the_mounted_tree_is_its_root(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/../../other\n", **group_v2("", 4 * GIB, GIB)}
    files |= {"memory.max": "1\n", "memory.current": "1\n"}
    assert available_memory_bytes(system(tmp_path, files)) == 3 * GIB


def test_resident_memory(tmp_path: Path) -> None:
    root = system(tmp_path, {"proc/self/status": "Name:\tx\nVmRSS:\t    1234 kB\n"})
    assert resident_bytes(root) == 1234 * 1024


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="reads /proc")
def test_the_memory_of_this_machine_is_known() -> None:
    memory, resident = memory_bytes(), resident_bytes()
    assert memory["total"] is not None and memory["available"] is not None
    assert 0 < memory["available"] <= memory["total"]
    assert resident is not None and 2**20 < resident < memory["total"]
