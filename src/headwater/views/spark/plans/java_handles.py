"""Java handles: several calls of Java methods, put together so that Python makes one.

What it is: ``JavaHandles``, a few words over ``java.lang.invoke``: a method as a handle, arguments that are fixed, one
handle before another, one whatever happens. A call over py4j takes Python 0.05 to 0.1 ms, and each object that comes
back as much again when it is let go; a handle of a dozen calls takes one of them.
Invariants: methods are found by their exact types, so that a Java library that has changed is noticed when a handle is
made, not when it is called. Nothing is compiled and no class of our own is in the JVM.
Not here: which calls (``driver_lane.py``, ``arrow_leaves.py``).
Read next: ``driver_lane.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject, JVMView
    from pyspark.sql import SparkSession

VOID, BOOLEAN, INT, LONG = "void", "boolean", "int", "long"


class JavaHandles:
    """Makes handles in one JVM. A type is given by its name in Java."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: JVMView = spark.sparkContext._jvm
        self._jvm: JVMView = jvm
        self._gateway: JavaGateway = spark.sparkContext._gateway
        self._handles, self._method_type = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodType
        self._lookup = self._handles.publicLookup()
        of = jvm.java.lang
        primitive = {VOID: of.Void, BOOLEAN: of.Boolean, INT: of.Integer, LONG: of.Long}
        self._types: dict[str, JavaObject] = {name: wrapper.TYPE for name, wrapper in primitive.items()}

    def method(self, owner: str, name: str, result: str, *parameters: str) -> JavaObject:
        """A method: its object, then its parameters."""
        return self._lookup.findVirtual(self._type(owner), name, self._signature(result, parameters))

    def constructor(self, owner: str, *parameters: str) -> JavaObject:
        """A constructor."""
        return self._lookup.findConstructor(self._type(owner), self._signature(VOID, parameters))

    def typed(self, handle: JavaObject, result: str, *parameters: str) -> JavaObject:
        """The same with other types, to and from which the values are cast; a result may be dropped."""
        return handle.asType(self._signature(result, parameters))

    def fixed(self, handle: JavaObject, place: int, *values: object) -> JavaObject:
        """The parameters from this place on have these values."""
        return self._handles.insertArguments(handle, place, self._array(self._jvm.java.lang.Object, values))

    def ignoring(self, handle: JavaObject, place: int, *types: str) -> JavaObject:
        """More parameters, at this place, which are not used."""
        return self._handles.dropArguments(handle, place, self._classes(types))

    def reordered(self, handle: JavaObject, result: str, parameters: tuple[str, ...], *places: int) -> JavaObject:
        """The handle's parameters are those at these places."""
        order = self._array(self._jvm.int, places)
        return self._handles.permuteArguments(handle, self._signature(result, parameters), order)

    def with_argument_from(self, handle: JavaObject, place: int, before: JavaObject) -> JavaObject:
        """The parameter at this place is what ``before`` gives; of one that gives nothing: it is called before.

        The parameters of ``before`` stand in the place of that one.
        """
        return self._handles.collectArguments(handle, place, before)

    def after(self, before: JavaObject, handle: JavaObject) -> JavaObject:
        """``before`` is called first, with the first parameters; its result, if any, is the handle's first one."""
        return self._handles.foldArguments(handle, before)

    def finally_(self, handle: JavaObject, cleanup: JavaObject) -> JavaObject:
        """``cleanup`` is called at the end, also after an error, with the error and the first parameters."""
        return self._handles.tryFinally(handle, cleanup)

    def arguments(self, *values: object) -> JavaObject:
        """Arguments for ``invokeWithArguments`` of handles, as often as they are called with the same."""
        found = self._jvm.java.util.ArrayList()
        for value in values:
            found.add(value)
        return found

    def _type(self, name: str) -> JavaObject:
        if name not in self._types:
            self._types[name] = self._jvm.java.lang.Class.forName(name)
        return self._types[name]

    def _signature(self, result: str, parameters: tuple[str, ...]) -> JavaObject:
        return self._method_type.methodType(self._type(result), self._classes(parameters))

    def _classes(self, names: tuple[str, ...]) -> JavaObject:
        return self._array(self._jvm.java.lang.Class, [self._type(name) for name in names])

    def _array(self, of: JavaObject, values: Sequence[object]) -> JavaObject:
        found: JavaObject = self._gateway.new_array(of, len(values))
        for place, value in enumerate(values):
            found[place] = value
        return found
