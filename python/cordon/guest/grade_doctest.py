"""Doctests of a test file: each example is a test. Runs in the sandbox of the tests."""
import ast

import grade_side
from grade_words import Captured, describe


def run(suite):
    import doctest
    examples = _examples(suite.text)
    if not examples:
        suite.broken("no doctests were found")
        return
    names = ["line %d: %s" % (line, " ".join(example.source.split())[:200]) for line, example in examples]
    try:
        tree = _tree(suite, examples)
        suite.background()
    except (SyntaxError, ValueError) as e:  # as in a file: no test has a name yet
        suite.broken("the tests do not compile: %s" % e)
        return
    if not suite.collected(names):
        return
    space = suite.globals(tree)
    suite.bind(space)
    checker = doctest.OutputChecker()
    for number, (_, example) in enumerate(examples):
        suite.begin(number)
        with Captured() as captured:
            raised = None
            try:
                exec(compile(example.source, suite.path, "single", dont_inherit=True), space)
                if "import" in example.source:
                    suite.bind(space, again=True)
            except grade_side.SubmissionGone:
                raise
            except (Exception, grade_side.Trouble) as e:
                raised = e
        suite.result(number, *_judged(example, captured.text(), raised, checker))


def _tree(suite, examples):
    """All of them as one file, but for those that are there to show an error of Python's own."""
    parts = []
    for line, example in examples:
        try:
            compile(example.source, suite.path, "single", dont_inherit=True)
            parts += ast.parse(example.source).body
        except (SyntaxError, ValueError) as e:
            if example.exc_msg is None:
                raise SyntaxError("line %d: %s" % (line, getattr(e, "msg", e))) from None
    return ast.Module(parts, [])


def _judged(example, output, raised, checker):
    if raised is None:
        flags = sum(flag for flag, on in example.options.items() if on)
        if checker.check_output(example.want, output, flags):
            return "passed", "", output
        return "failed", "expected: %s\n     got: %s" % (example.want.strip(), output.strip()), output
    said = str(raised.msg if isinstance(raised, SyntaxError) else raised)  # its place is on a line of its own
    words = "%s: %s\n" % (type(raised).__name__, said) if said else type(raised).__name__ + "\n"
    if example.exc_msg is not None and checker.check_output(example.exc_msg, words, 0):
        return "passed", "", output
    return "error", describe(raised), output


def _examples(text):
    """Of a Python file its docstrings', of any other text all."""
    import doctest
    parser = doctest.DocTestParser()
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return [(example.lineno + 1, example) for example in parser.get_examples(text)]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            words = ast.get_docstring(node, clean=False)
            if words:
                start = node.body[0].lineno
                found += [(start + example.lineno, example) for example in parser.get_examples(words)]
    return found
