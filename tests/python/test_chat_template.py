"""Chat templates: finding them, rendering them, BOS, and hostile templates."""

from __future__ import annotations

import contextlib
import copy
import json
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.hostile_templates import BREAK_OUT, NOTHING
from builders.tiny_tokenizers import (
    byte_level,
    sentencepiece,
    smollm2,
    smollm2_metadata,
    wrapped,
    write_folder,
)
from onward.errors import ArgumentTypeError, InvalidArgument, TemplateError
from onward.text.template.template import ChatTemplate, chat_prompt_ids
from onward.text.tokenizer.tokenizer import Tokenizer

EXPECTED = Path(__file__).parents[1] / "fixtures" / "tokenizers" / "expected.json"
HI = [{"role": "user", "content": "hi"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": " hello "},
]


def _render(source: str, messages: Any = HI, **options: Any) -> str:
    return ChatTemplate({"default": source}, {"bos_token": "<s>"}).render(messages, **options)


def test_smollm2_prompt_has_the_reference_ids() -> None:
    tokenizer = smollm2()
    metadata = smollm2_metadata()
    assert metadata is not None
    template = ChatTemplate.from_gguf(metadata, tokenizer)
    messages = [{"role": "user", "content": "What is gravity?"}]
    assert template.render(messages) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n"
    )
    # From transformers 5.24 (AutoTokenizer with the same GGUF file).
    system = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308]
    system += [34519, 28, 7018, 411, 407, 19712, 8182, 2, 198]
    user = [1, 4093, 198, 1780, 314, 9354, 47, 2, 198]
    assert chat_prompt_ids(template, tokenizer, messages) == [*system, *user, 1, 520, 9531, 198]
    no_answer = chat_prompt_ids(template, tokenizer, messages, add_generation_prompt=False)
    assert no_answer == [*system, *user]


@pytest.mark.parametrize("kind", ["bytelevel", "metaspace", "prepend"])
def test_prompts_equal_the_reference(kind: str) -> None:
    if not EXPECTED.exists():
        pytest.skip("tests/fixtures/tokenizers has not been made")
    tokenizer = Tokenizer.from_folder(EXPECTED.parent / kind)
    template = ChatTemplate.from_folder(EXPECTED.parent / kind, tokenizer)
    for chat in json.loads(EXPECTED.read_text("utf-8"))[kind]["chats"]:
        options = {"add_generation_prompt": chat["add_generation_prompt"]}
        assert template.render(chat["messages"], **options) == chat["text"]
        ids = chat_prompt_ids(template, tokenizer, chat["messages"], **options)
        missing = tokenizer.adds_bos and chat["ids"][:1] != [tokenizer.bos_token_id]
        assert ids == ([tokenizer.bos_token_id] if missing else []) + chat["ids"]


BLOCKS = """{% for m in messages %}
    {% if m.role == 'user' %}
U:{{ m.content }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
A:{% endif %}"""


def test_blocks_leave_no_blanks() -> None:
    assert _render(BLOCKS) == "U:hi\nA:"


def test_common_features_of_templates_work() -> None:
    cases = {
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}": "13",
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}": "1",
        "{{ {'a': '<é>\"'}|tojson }}": '{"a": "<é>\\""}',
        "{{ [1, 'é']|tojson(indent=2) }}": '[\n  1,\n  "é"\n]',
        "{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}": '{"a":2,"b":1}',
        "{{ bos_token }}{{ eos_token }}": "<s>",
        "{{ tools is none }}{{ documents is none }}": "TrueTrue",
        "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}": "3",
        "{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('a') ~ f('b') }}": "[a][b]",
        "{% for i in 'abc' %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
        "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}": (
            "0TrueFalse3b 1FalseFalse3ac 2FalseTrue3b "
        ),
        "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}": "a1b2",
        "{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}": "a1",
        "{{ messages[-1].content.split('i')[0].strip().upper() }}": "H",
        "{{ 'a,b'.split(',') }}{{ ' x '|trim }}{{ 'x'.startswith('x') }}": "['a', 'b']xTrue",
        "{{ 'abcdef'[1:-1] }}{{ [1, 2, 3][::-1] }}{{ 'ab' 'cd' }}": "bcde[3, 2, 1]abcd",
        "{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|join('-') }}": "1-2",
        "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}": "1",
        "{{ messages|rejectattr('role', 'in', ['user'])|list|length }}": "0",
        "{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 3 }}{{ -1 + 2 * 3 }}{{ 3 / 2 }}": "33851.5",
        "{{ 'a%sb%03d' % ('x', 5) }}{{ '%s!' | format('y') }}{{ '{}-{x:>3}'.format(1, x=2) }}": (
            "axb005y!1-  2"
        ),
        "{{ 'a\nb'|indent(2) }}{{ 'x'|replace('x', 'y') }}{{ '<'|e }}{{ '<'|safe }}": (
            "a\n  by&lt;<"
        ),
        "{{ [3, 1]|sort|first }}{{ [1, 2]|sum }}{{ [1, 1]|unique|list }}{{ 1.26|round(1) }}": (
            "13[1]1.3"
        ),
        "{{ messages[0].missing is defined }}{{ messages[0]['missing'] }}x{{ nothing }}": "Falsex",
        "{{ messages[0].get('missing', 'none') }}": "none",
        "{% generation %}{{ 'text' }}{% endgeneration %}": "text",
        "{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}": "a1B",
        "{% call(x) m() %}{{ x }}{% endcall %}": None,
        "{% macro m() %}{{ caller(5) }}{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}": "5",
        "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}": (
            "123"
        ),
        "{{ strftime_now('%Y')|length }}{{ 'yes' if true else 'no' }}": "4yes",
        "{{ cycler('a', 'b').next() }}{{ 'x' in 'xyz' }}{{ 'r' in messages[0] }}": "aTrueFalse",
        "{# nothing #}{% raw %}{{ }}{% endraw %}": "{{ }}",
    }
    for source, text in cases.items():
        if text is None:
            with pytest.raises(TemplateError):
                _render(source)
        else:
            assert _render(source) == text, source


def test_variables_reach_the_template() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    source = "{{ tools|tojson }}{{ enable_thinking }}{{ documents }}{{ bos_token }}"
    text = _render(source, tools=tools, enable_thinking=False, bos_token="B")
    assert text == json.dumps(tools) + "FalseNoneB"


def test_the_prompt_for_the_answer() -> None:
    source = "{{ messages[0].content }}{{ '!' if add_generation_prompt }}"
    assert _render(source) == _render(source, add_generation_prompt=True) == "hi!"
    assert _render(source, add_generation_prompt=False) == "hi"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[Be brief.][hi][ hello "),
        ("{% for m in messages %}[{{ m.content|trim }}]{% endfor %}", "[Be brief.][hi][hello"),
    ],
)
def test_final_message_can_be_continued(source: str, text: str) -> None:
    assert _render(source, TALK, continue_final_message=True) == text


def test_final_message_that_cannot_be_continued() -> None:
    with pytest.raises(InvalidArgument, match="both set"):
        _render("x", TALK, continue_final_message=True, add_generation_prompt=True)
    with pytest.raises(TemplateError, match="does not show"):
        _render("x", TALK, continue_final_message=True)
    with pytest.raises(InvalidArgument, match="no text"):
        _render("x", [{"role": "user", "content": []}], continue_final_message=True)


def _folder(tmp_path: Path, template: Any, files: dict[str, str]) -> ChatTemplate:
    config = {"eos_token": "<|end|>"}
    if template is not None:
        config["chat_template"] = template
    folder = write_folder(tmp_path, byte_level(), config, files)
    return ChatTemplate.from_folder(folder, Tokenizer.from_folder(folder))


NAMED = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]


def test_the_places_of_templates(tmp_path: Path) -> None:
    jinja = {"chat_template.jinja": "J{{ eos_token }}"}
    assert _folder(tmp_path / "a", None, jinja).render(HI) == "J<|end|>"
    assert _folder(tmp_path / "b", "C", jinja).render(HI) == "J<|end|>"
    assert _folder(tmp_path / "c", "C", {}).render(HI) == "C"
    named = _folder(tmp_path / "d", NAMED, {})
    assert named.names == ["default", "tool_use"]
    assert named.render(HI) == "D"
    assert named.render(HI, chat_template="tool_use") == "T"
    assert named.render(HI, tools=[{"a": 1}]) == "T"
    assert named.render(HI, tools=[{"a": 1}], chat_template="default") == "D"
    for place in ("chat_templates", "additional_chat_templates"):
        more = _folder(tmp_path / place, "C", {f"{place}/rag.jinja": "R"})
        assert more.render(HI, chat_template="rag") == "R"
        assert more.render(HI) == "C"


def test_templates_of_gguf() -> None:
    tokenizer = Tokenizer(byte_level())
    metadata = {"tokenizer.chat_template": "G", "tokenizer.chat_template.tool_use": "T"}
    template = ChatTemplate.from_gguf(metadata, tokenizer)
    assert template.render(HI) == "G"
    assert template.render(HI, chat_template="tool_use") == "T"
    with pytest.raises(TemplateError, match="no chat template"):
        ChatTemplate.from_gguf({}, tokenizer).render(HI)


def test_a_missing_template_is_an_error(tmp_path: Path) -> None:
    for i, value in enumerate((None, 3, [], [{"name": "x"}], {"a": 1})):
        template = _folder(tmp_path / str(i), value, {})
        with pytest.raises(TemplateError, match=r"no chat template .*generate\(\) works"):
            template.render(HI)
    with pytest.raises(TemplateError, match="none named 'rag', found default, tool_use"):
        _folder(tmp_path / "named", NAMED, {}).render(HI, chat_template="rag")


def test_template_file_that_cannot_be_read(tmp_path: Path) -> None:
    template = _folder(tmp_path / "a", "C", {"chat_template.jinja": "x" * (2 << 20)})
    with pytest.raises(TemplateError, match="larger than"):
        template.render(HI)
    folder = write_folder(tmp_path / "b", byte_level(), {})
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(TemplateError, match="cannot be read"):
        ChatTemplate.from_folder(folder, Tokenizer.from_folder(folder)).render(HI)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_a_prompt_has_at_most_one_bos(writes: bool, adds: bool) -> None:
    """One BOS if the template or the tokenizer adds one, and never two."""
    tokenizer = wrapped(sentencepiece(adds_bos=adds), bos_token="<s>", eos_token="</s>")
    source = "{{ bos_token if writes }}{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    template = ChatTemplate({"default": source}, tokenizer.special_tokens)
    ids = chat_prompt_ids(template, tokenizer, HI, writes=writes)
    assert ids.count(1) == (1 if writes or adds else 0)
    assert (ids[0] == 1) == (writes or adds)
    assert ids[-1] == 2


def test_raise_exception_of_a_template_is_an_error() -> None:
    with pytest.raises(TemplateError, match="chat template: roles must alternate, please"):
        _render("{{ raise_exception('roles must ' ~ 'alternate, please') }}")


def test_errors_name_the_line() -> None:
    for source in ("a\n\n{{ x.y.z }}", "a\n\n{{ 1 + }}", "a\n\n{% if %}", "a\n\n{{ 1 / 0 }}"):
        with pytest.raises(TemplateError, match="chat template, line 3: "):
            _render(source)


@pytest.mark.parametrize(
    ("messages", "error", "message"),
    [
        ([], InvalidArgument, "found none"),
        ((), InvalidArgument, "found none"),
        ("hi", ArgumentTypeError, "found a str"),
        (None, ArgumentTypeError, "found a NoneType"),
        ({"role": "user"}, ArgumentTypeError, "found a dict"),
        (["hi"], ArgumentTypeError, r"messages\[0\]: found a str"),
        ([*HI, {"content": "x"}], InvalidArgument, r"messages\[1\]: it has no role"),
        ([{"role": 3, "content": "x"}], ArgumentTypeError, "role: found a int"),
        ([{"role": "user"}], InvalidArgument, "neither content nor tool_calls"),
        ([{"role": "user", "content": None}], InvalidArgument, "neither content"),
        ([{"role": "user", "content": 3}], ArgumentTypeError, "content: found a int"),
        ([{"role": "user", "content": b"x"}], ArgumentTypeError, "content: found a bytes"),
        ([{"role": "user", "content": "x", "o": object()}], ArgumentTypeError, "found a object"),
        ([{"role": "user", "content": "x", "o": 2**70}], InvalidArgument, "71 bits"),
    ],
)
def test_messages_are_checked(messages: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _render("x", messages)


def test_variables_are_checked() -> None:
    with pytest.raises(ArgumentTypeError, match="tools"):
        _render("x", tools=[len])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArgument, match="nested"):
        _render("x", documents=endless)


def test_content_of_parts_and_tool_calls() -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "22"},
    ]
    source = "{{ messages[0].content[0].text }}{{ messages[1].tool_calls[0].function.name }}"
    assert _render(source, messages) == "hif"


def test_messages_are_not_changed() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi", "extra": {"a": [1]}}]
    before = copy.deepcopy(messages)
    for source in (
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].extra.a.append(2) }}",
        "{{ messages[0].pop('role') }}",
        "{% set messages = [] %}{{ messages }}",
    ):
        with contextlib.suppress(TemplateError):
            _render(source, messages)
        assert messages == before


def test_templates_cannot_break_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for source in BREAK_OUT:
        with pytest.raises(TemplateError):
            _render(source)
    for source in NOTHING:
        assert _render(source) == ""
    assert list(tmp_path.iterdir()) == []


def peak_bytes() -> int:
    """The peak memory of this process, if the system reports it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_templates_stay_within_their_budget(run_python: Callable[..., Any]) -> None:
    """2 s and 64 MB each, in a separate process, so that only they use its memory. Other threads of
    the process run at the same time: the longest wait is one call in C."""
    source = """
    import threading
    import time
    from builders.hostile_templates import HEAVY, HUNGRY
    from onward.errors import TemplateError
    from test_chat_template import _render, peak_bytes
    _render("{{ messages }}")
    waited, ended = [0.0], threading.Event()
    def ticker():
        last = time.perf_counter()
        while not ended.wait(0.005):
            now = time.perf_counter()
            waited[0] = max(waited[0], now - last)
            last = now
    other = threading.Thread(target=ticker)
    other.start()
    before = peak_bytes()
    for template in [*HUNGRY, *HEAVY]:
        waited[0] = 0.0
        start = time.perf_counter()
        try:
            text = _render(template)
            if template in HUNGRY:
                print("rendered", template[:80], len(text))
        except TemplateError:
            pass
        took = time.perf_counter() - start
        if took > 2.5:
            print("slow", template[:80], took)
        if waited[0] > 0.7:
            print("others waited", template[:80], waited[0])
        grown = peak_bytes() - before
        if grown > 64 << 20:
            print("large", template[:80], grown)
            before = peak_bytes()
    ended.set()
    other.join()
    print("end")
    """
    done = run_python(textwrap.dedent(source), timeout=240)
    assert (done.stdout, done.returncode) == ("end\n", 0), done.stdout + done.stderr


def test_long_conversations_fit() -> None:
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": f"é{i} " * 2000}
        for i in range(200)
    ]
    source = "{% for m in messages %}{{ '<' + m.role + '>\n' + m.content|trim + '\n' }}{% endfor %}"
    assert len(_render(source, messages)) > 1_500_000
    growing = "{% set ns = namespace(t='') %}{% for m in messages[1:] %}"
    growing += "{% set ns.t = ns.t ~ m.role %}{% endfor %}{{ ns.t }}"
    assert _render(growing, messages).count("user") == 99


def test_a_rendering_is_cheap() -> None:
    template = ChatTemplate({"default": BLOCKS}, {})
    template.render(TALK)
    start = time.perf_counter()
    for _ in range(50):
        template.render(TALK)
    assert (time.perf_counter() - start) / 50 < 0.005


def test_threads_render_at_once() -> None:
    template = ChatTemplate({"default": BLOCKS}, {})
    wrong: list[str] = []

    def render(i: int) -> None:
        for _ in range(50):
            text = template.render([{"role": "user", "content": str(i)}])
            if text != f"U:{i}\nA:":
                wrong.append(text)

    threads = [threading.Thread(target=render, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_modules_are_imported_when_needed(run_python: Callable[..., Any]) -> None:
    modules = ("template.template", "tokenizer.tokenizer", "streaming")
    source = "import sys, " + ", ".join(f"onward.text.{module}" for module in modules) + ";"
    source += "print(sorted({'jinja2', 'tokenizers'} & set(sys.modules)))"
    assert run_python(source).stdout == "[]\n"
