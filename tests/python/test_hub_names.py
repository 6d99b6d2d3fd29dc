"""The spelling of hub models, and the files of a repository that a name selects."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import ArgumentTypeError, InvalidArgument, ModelNotFound
from onward.lab.compare.setting import parse_setting
from onward.load.hub.names import HubName, parse, with_revision
from onward.load.hub.selection import Selection, gguf_files, select, tag_of, weight_files

REPO = HubName("user/repo")
FOLDER = ["config.json", "tokenizer.json", "model.safetensors"]


class TestSpelling:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("user/repo", HubName("user/repo")),
            ("user/Repo-1.5_b", HubName("user/Repo-1.5_b")),
            ("user/repo:Q4_K_M", HubName("user/repo", "Q4_K_M")),
            ("user/repo@main", HubName("user/repo", None, "main")),
            ("user/repo:q8_0@v1.0", HubName("user/repo", "q8_0", "v1.0")),
            ("user/repo@refs/pr/3", HubName("user/repo", None, "refs/pr/3")),
            ("user/repo:sub/model-Q8_0.gguf", HubName("user/repo", "sub/model-Q8_0.gguf")),
        ],
    )
    def test_names_are_read_and_written(self, text: str, expected: HubName) -> None:
        assert parse(text) == expected
        assert str(expected) == text

    @pytest.mark.parametrize("text", ["gpt2", "a/b/c", "./a/b", "a/b.gguf", "a/b.onward", "a b/c"])
    def test_other_texts_are_not_names(self, text: str) -> None:
        assert parse(text) is None

    @pytest.mark.parametrize("text", ["user/repo:", "user/repo@", "user/repo@a b", "user/repo:a:b"])
    def test_a_name_with_a_wrong_end_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument, match=r"expected user/repo, user/repo:Q4_K_M for one"):
            parse(text)

    def test_the_revision_comes_last(self) -> None:
        with pytest.raises(InvalidArgument, match="; the revision comes last"):
            parse("user/repo@main:Q4_K_M")

    def test_a_revision_given_twice_is_refused(self) -> None:
        assert with_revision(REPO, None) == REPO
        assert with_revision(REPO, "v1") == HubName("user/repo", None, "v1")
        assert with_revision(HubName("user/repo", None, "v1"), "v1").revision == "v1"
        with pytest.raises(InvalidArgument, match="the model is user/repo@v1, expected one of the"):
            with_revision(HubName("user/repo", None, "v1"), "v2")

    @pytest.mark.parametrize("revision", ["", "a b", "a:b", "a@b"])
    def test_an_impossible_revision_is_refused(self, revision: str) -> None:
        with pytest.raises(InvalidArgument, match="expected a branch, a tag or a commit"):
            with_revision(REPO, revision)

    @pytest.mark.parametrize("revision", [1, b"main", True])
    def test_a_revision_of_a_wrong_type(self, revision: Any) -> None:
        with pytest.raises(ArgumentTypeError, match=r"revision: is .*, expected text or None"):
            with_revision(REPO, revision)

    def test_names_in_a_setting_of_compare(self) -> None:
        setting = parse_setting("cpu:bf16:model=user/repo:Q4_K_M@v1:threads=2")
        assert setting.keys == {"model": "user/repo:Q4_K_M@v1", "threads": "2"}
        assert (setting.device, setting.dtype) == ("cpu", "bf16")


class TestTags:
    @pytest.mark.parametrize(
        ("stem", "tag"),
        [
            ("Model-7B-Q4_K_M", "Q4_K_M"),
            ("model.q8_0", "Q8_0"),
            ("model-IQ4_XS", "IQ4_XS"),
            ("Q6_K/model-Q6_K", "Q6_K"),
            ("model-UD-Q4_K_XL", "UD-Q4_K_XL"),
            ("model-bf16", "BF16"),
            ("gpt-mxfp4", "MXFP4"),
            ("SmolLM2", "SmolLM2"),
        ],
    )
    def test_the_tag_of_a_file_name(self, stem: str, tag: str) -> None:
        assert tag_of(stem) == tag


class TestSelection:
    @pytest.mark.parametrize("tag", ["Q4_K_M", "q4_k_m", "m-Q4_K_M", "m-Q4_K_M.gguf"])
    def test_a_tag_in_any_case_or_a_file_name(self, tag: str) -> None:
        files = ["m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-IQ4_K_M.gguf", "mmproj-Q4_K_M.gguf"]
        expected = Selection("gguf", ("m-Q4_K_M.gguf",), "Q4_K_M")
        assert select(HubName("user/repo", tag), files) == expected

    def test_a_tag_is_a_whole_word(self) -> None:
        files = ["m-Q4_K_M.gguf", "m-Q4_K.gguf"]
        assert select(HubName("user/repo", "Q4_K"), files).files == ("m-Q4_K.gguf",)
        with pytest.raises(ModelNotFound, match=r"fits Q4, expected one of user/repo:Q4_K, user/"):
            select(HubName("user/repo", "Q4"), files)

    def test_a_tag_comes_before_safetensors(self) -> None:
        files = [*FOLDER, "m-f16.gguf"]
        assert select(HubName("user/repo", "F16"), files).files == ("m-f16.gguf",)
        assert select(REPO, files).kind == "folder"

    def test_several_files_of_one_tag_are_listed(self) -> None:
        files = ["a-Q8_0.gguf", "b-Q8_0.gguf"]
        with pytest.raises(ModelNotFound, match=r"2 GGUF .* one of user/repo:a-Q8_0, user/repo:b-"):
            select(HubName("user/repo", "Q8_0"), files)
        expected = Selection("gguf", ("b-Q8_0.gguf",), "b-Q8_0")  # the tag would not find it
        assert select(HubName("user/repo", "b-Q8_0"), files) == expected

    def test_a_tag_without_a_gguf_file_is_an_error(self) -> None:
        with pytest.raises(ModelNotFound, match="fits Q8_0, the repository has no GGUF"):
            select(HubName("user/repo", "Q8_0"), FOLDER)

    def test_a_tag_selects_all_parts(self) -> None:
        parts = [f"Q8_0/m-Q8_0-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
        found = select(HubName("user/repo", "Q8_0"), [*reversed(parts), "m-Q4_0.gguf"])
        assert found == Selection("gguf", tuple(parts), "Q8_0")
        with pytest.raises(ModelNotFound, match=r"3 parts, without Q8_0/m-Q8_0-00002-of-00003\.gg"):
            select(HubName("user/repo", "Q8_0"), [parts[0], parts[2]])

    @pytest.mark.parametrize(
        ("tags", "expected"),
        [
            (["Q8_0", "Q4_K_M", "Q4_0"], "Q4_K_M"),
            (["Q8_0", "Q5_K_M", "Q4_0"], "Q4_0"),
            (["Q8_0", "Q6_K", "Q2_K"], "Q6_K"),
            (["F16", "Q8_0"], "Q8_0"),
            (["F16"], "F16"),
        ],
    )
    def test_the_documented_order_without_a_tag(self, tags: list[str], expected: str) -> None:
        assert select(REPO, [f"m-{tag}.gguf" for tag in tags]).tag == expected

    def test_several_files_outside_the_documented_order_are_an_error(self) -> None:
        with pytest.raises(ModelNotFound, match=r"expected one of user/repo:F16, user/repo:Q2_K$"):
            select(REPO, ["m-Q2_K.gguf", "m-F16.gguf"])

    def test_only_files_that_are_read_are_downloaded(self) -> None:
        wanted = ["config.json", "chat_template.jinja", "generation_config.json"]
        wanted += ["tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"]
        shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        others = ["README.md", "consolidated.safetensors", "modeling_evil.py", "onnx/model.onnx"]
        others += ["original/model.safetensors", "pytorch_model.bin", "sub/config.json"]
        others += ["adapter_model.safetensors"]
        found = select(REPO, [*others, *wanted, *shards])
        assert set(found.files) == {*wanted, *shards}

    def test_only_model_safetensors_is_selected_beside_others(self) -> None:
        more = ["model.fp16.safetensors", "model.safetensors.index.json"]
        assert set(select(REPO, [*FOLDER, *more]).files) == set(FOLDER)
        assert weight_files([*FOLDER, *more]) == ["model.safetensors"]

    @pytest.mark.parametrize("files", [[], ["config.json", "pytorch_model.bin"], ["a.safetensors"]])
    def test_a_repository_without_a_model_is_an_error(self, files: list[str]) -> None:
        with pytest.raises(ModelNotFound, match=r"expected config\.json with \.safetensors files,"):
            select(REPO, files)

    def test_other_files_beside_a_model_are_not_models(self) -> None:
        assert gguf_files(["mmproj-f16.gguf", "m.imatrix.gguf", "m.gguf"]) == {"m": ["m.gguf"]}
