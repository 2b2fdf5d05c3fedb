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
    if not suite.collected(names):
        return
    tree = ast.parse("\n".join(example.source for _, example in examples))
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


def _judged(example, output, raised, checker):
    if raised is None:
        flags = sum(flag for flag, on in example.options.items() if on)
        if checker.check_output(example.want, output, flags):
            return "passed", "", output
        return "failed", "expected: %s\n     got: %s" % (example.want.strip(), output.strip()), output
    words = "%s: %s\n" % (type(raised).__name__, raised) if str(raised) else type(raised).__name__ + "\n"
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
