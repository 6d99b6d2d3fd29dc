"""The sandbox for chat templates, which are programs from untrusted files.

It is a jinja2 environment in which only the filters, methods and functions of filters.py exist. The
syntax tree of a template is changed before it is compiled, so that loops, literals, slices,
comparisons, `~` and output ask the Budget as well. There is no loader, so no file can be opened.

The Budget is checked between steps. A single step takes time in proportion to its operands, whose
size is bounded. So a rendering ends in time, and other threads run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, wraps
from typing import Any, cast

from jinja2 import Template, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Joiner
from jinja2.visitor import NodeTransformer

from onward.text.template.budget import Budget, BudgetExceeded, budget_in_use
from onward.text.template.filters import ALLOWED_FILTERS, FUNCTIONS, METHODS, Function, percent

MAX_SOURCE_CHARACTERS = 64 << 10  # the largest published templates have about 30 KB
MAX_NODES = 16_000
_REFUSED = (  # tags that open other templates or change the type of text
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.EvalContextModifier,
)


def compile_template(source: str) -> Template:
    """Compile `source`.

    Raises:
        BudgetExceeded: it is too long.
        Exception: of many types, if it is not a template.
    """
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise BudgetExceeded(
            f"it has {len(source)} characters, expected at most {MAX_SOURCE_CHARACTERS}"
        )
    environment = _environment()
    tree = environment.parse(source)
    for count, node in enumerate(tree.find_all(nodes.Node)):
        if isinstance(node, _REFUSED):
            name = type(node).__name__.lower()
            raise SecurityError(f"line {node.lineno}: a chat template may not use {name}")
        if count > MAX_NODES:
            raise BudgetExceeded(f"it has more than {MAX_NODES} parts")
    tree = _Guarding().visit(tree)
    tree.set_environment(environment)
    code = environment.compile(tree, filename="<chat template>")
    return Template.from_code(environment, code, environment.make_globals(None))


def render_template(template: Template, variables: Mapping[str, Any], budget: Budget) -> str:
    """Render `template` within `budget`.

    Raises:
        BudgetExceeded: it exceeded its budget.
        Exception: of many types, if the template fails.
    """
    with budget.used():
        return "".join(budget.each(template.generate(variables)))


class _Guarding(NodeTransformer):
    """Puts a filter that asks the Budget around every expression that makes a value without a
    call."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(cast(nodes.Expr, node.iter), "@each")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        node.nodes = [
            nodes.Const(child.data, lineno=child.lineno)
            if isinstance(child, nodes.TemplateData)
            else self.visit(child)
            for child in node.nodes
        ]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "@ticked")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "@concat")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made") if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made") if isinstance(node.arg, nodes.Slice) else node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks text for training; here it is only text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = budget_in_use()
        budget.tick()
        if operator == "%" and isinstance(left, str):
            return budget.made(percent(left, right))
        if operator == "+" and isinstance(left, (str, list, tuple)) and type(left) is type(right):
            budget.pay(8 * (len(left) + len(right)))
        elif operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, (str, list, tuple)) and isinstance(times, int):
                    size = budget.text_size(many)
                    budget.pay(size * max(0, times))
        elif operator == "**" and (not _is_small(left) or not _is_small(right)):
            raise BudgetExceeded("an operand of ** is larger than 64")
        return budget.made(super().call_binop(context, operator, left, right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        budget_in_use().tick()
        return _quiet(obj, attribute, super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        budget_in_use().tick()
        return _quiet(obj, argument, super().getitem(obj, argument))

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = budget_in_use()
        if isinstance(obj, _Block):
            obj = obj.reference
        if isinstance(obj, (Macro, LoopContext, BlockReference, Joiner, Undefined)):
            if isinstance(obj, LoopContext) and args:
                args = (budget.listed(args[0]), *args[1:])
            budget.enter()
            result = budget.made(super().call(context, obj, *args, **kwargs))
            budget.calls -= 1
            return result
        budget.tick()
        kwargs.pop("_loop_vars", None)  # jinja2 passes this to its own functions
        kwargs.pop("_block_vars", None)
        if isinstance(obj, Function):
            return budget.made(obj.function(*args, **kwargs))
        raise SecurityError(f"a chat template may not call {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> None:
        return None  # str.format is called as any other method, see _format


class _Block:
    """A block of the template as a value, without the address that jinja2's own object prints."""

    def __init__(self, reference: BlockReference) -> None:
        self.reference = reference

    def __repr__(self) -> str:
        return "<block>"


def _quiet(owner: Any, name: Any, value: Any) -> Any:
    """The value of an attribute. Methods become objects that ``call`` recognises and that print
    no address, because the text of a prompt must be the same in every process."""
    if isinstance(value, BlockReference):
        return _Block(value)
    if not callable(value) or isinstance(value, (Macro, Undefined, Joiner, LoopContext, Function)):
        return value
    for kind, methods in METHODS.items():
        if isinstance(owner, kind) and name in methods:
            return Function(name, partial(methods[name], owner))
    return Function(str(name)[:60], _refused(str(name)[:60]))


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise SecurityError(f"a chat template may not call {name}")

    return refuse


def _ticking(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test such as `is in`, which filters call for each item."""

    @wraps(test)
    def ticking(*args: Any, **kwargs: Any) -> Any:
        budget_in_use().tick()
        return test(*args, **kwargs)

    return ticking


def _is_small(value: Any) -> bool:
    return not isinstance(value, (int, float)) or abs(value) <= 64


@pass_context
def _shown(context: Context, value: Any) -> Any:
    budget = budget_in_use()
    budget.tick()
    budget.pay(budget.text_size(value))
    return value


def _each(values: Iterable[Any]) -> Iterable[Any]:
    return budget_in_use().each(values)


def _made(value: Any) -> Any:
    return budget_in_use().made(value)


def _ticked(value: Any) -> Any:
    budget_in_use().tick()
    return value


@cache
def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _GenerationTag],
        finalize=_shown,
        optimized=False,  # nothing is evaluated before a rendering and its Budget begin
        autoescape=False,
    )
    environment.filters = dict(ALLOWED_FILTERS)
    environment.filters["@each"] = _each
    environment.filters["@made"] = _made
    environment.filters["@ticked"] = _ticked
    environment.tests = {name: _ticking(cast(Any, test)) for name, test in TESTS.items()}
    environment.globals = dict(FUNCTIONS)
    return environment
