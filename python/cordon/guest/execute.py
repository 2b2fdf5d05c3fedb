"""Runs one piece of Python text with values given and a value wanted; in the sandbox, as its only program.

Standard input has the length of a head, the head (where the outcome goes, and its bound) and the request: code,
context, rules of module control. Everything a guest's code does afterwards to this process can only spoil its own outcome.
"""
import sys

NAME = "main.py"
MAX_TEXT = 100_000


def main(archive):
    import os
    from . import decode, encode, guard
    data = memoryview(sys.stdin.buffer.read())
    start = 4 + int.from_bytes(data[:4], "little")
    head = decode.decode(data[4:start])
    os.unlink(archive)
    sys.path.remove(archive)
    for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
        del sys.modules[name]
    try:
        request = decode.decode(data[start:])
    except decode.DecodeError as e:
        why = f"the context cannot be read in the guest: {e}"
        outcome = {"success": False, "error": why, "type": "DecodeError", "message": why, "traceback": ""}
    else:
        del data
        outcome = _execute(request, guard)
    _flush()
    _leave(head["outcome"], head["max_bytes"], outcome, encode)
    if not outcome["success"]:
        sys.exit(1)


def _execute(request, guard):
    code = request["code"]
    rules = guard.Rules(request["rules"])
    refused = guard.check(rules, code)
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return {"success": False, "error": refused[0], "type": "ImportError", "message": refused[0], "traceback": ""}
    module = type(sys)("__main__")
    names = module.__dict__
    names["__builtins__"] = __builtins__
    names.update(request["context"])
    sys.modules["__main__"] = module
    sys.argv = [NAME]
    _remember(code)
    try:
        body, last = _compiled(code)
        import builtins
        builtins.__import__ = guard._Hook(rules, builtins.__import__)
        value = None
        if body is not None:
            exec(body, names)
        if last is not None:
            value = eval(last, names)
    except SystemExit as e:
        if e.code is None or e.code == 0:
            return {"success": True, "value": names.get("result")}
        return _failed(e)
    except BaseException as e:
        return _failed(e)
    return {"success": True, "value": names["result"] if "result" in names else value}


def _remember(code):
    """Tracebacks quote the lines of the code, though no file has them."""
    import linecache
    linecache.cache[NAME] = (len(code), None, [line + "\n" for line in code.splitlines()], NAME)


def _compiled(code):
    """All but a last expression, and the expression."""
    import ast
    tree = ast.parse(code, NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = compile(tree, NAME, "exec", dont_inherit=True)
    if last is None:
        return body, None
    features = body.co_flags & 0x1FF0000  # what `from __future__` switched on
    return body, compile(ast.Expression(last.value), NAME, "eval", flags=features, dont_inherit=True)


def _failed(e):
    """Type, message, and the traceback from the code's own first frame on."""
    import traceback
    frame = e.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != NAME:
        frame = frame.tb_next
    try:
        text = "".join(traceback.format_exception(type(e), e, frame))
    except BaseException:
        text = f"{type(e).__name__}: (its traceback cannot be shown)\n"
    try:
        message = str(e)
    except BaseException:
        message = "(its message cannot be shown)"
    try:
        sys.stderr.write(text)
    except BaseException:
        pass
    kind = type(e).__name__
    return {"success": False, "error": (f"{kind}: {message}" if message else kind)[:MAX_TEXT], "type": kind,
            "message": message[:MAX_TEXT], "traceback": text[-MAX_TEXT:]}


def _flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass


def _leave(path, max_bytes, outcome, encode):
    """The outcome in its file; a value that cannot travel as its repr."""
    try:
        data = encode.encode(outcome, max_bytes)
    except (encode.EncodeError, RecursionError, MemoryError) as e:
        try:
            text = repr(outcome.get("value"))
        except BaseException as failure:
            text = f"<a value whose repr raises {type(failure).__name__}>"
        data = encode.encode({"success": True, "repr": text[:MAX_TEXT],
                              "note": f"the value came back as its repr: {e}"[:1000]})
    with open(path, "r+b", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view):]
