"""Turns the texts of the runtime's modules into modules, then starts the worker.

This text stands at the end of the one the interpreter is started with; SOURCES,
module name to text in the order of need, stands before it.
"""


def boot(sources):
    """Runs the modules as a package nothing else can import, and serves."""
    import builtins
    import sys
    from types import ModuleType

    package = ModuleType("ptc_child")
    package.__path__ = []
    sys.modules["ptc_child"] = package
    names = ["ptc_child"]
    for name, text in sources.items():
        module = ModuleType("ptc_child." + name)
        module.__dict__["__builtins__"] = dict(vars(builtins))
        sys.modules[module.__name__] = module
        names.append(module.__name__)
        exec(compile(text, "<ptc_child>/%s.py" % name, "exec"), module.__dict__)
        setattr(package, name, module)
    main = package.runner.main
    # The program finds no trace of these under any name.
    for name in names:
        del sys.modules[name]
    main()


boot(SOURCES)  # noqa: F821
