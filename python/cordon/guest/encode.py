"""Python values as bytes, typed and bounded, for the way into a guest and out of it: the writing side.

The same file runs in the package and inside the guest. A value is a tag byte and its payload; lengths are
LEB128. Depth, number of values and size are limited on both sides. decode.py is the reading side.
"""
import re
import struct
import sys

MAGIC = b"CDN1"
MAX_DEPTH = 200
MAX_VALUES = 4_000_000
HEAVY = 20  # values that one of pandas counts as: making one takes tens of microseconds
MAX_BYTES = 64 * 1024 * 1024

ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]*(/[A-Za-z0-9_+\-]+){0,3}\Z")
DTYPE = re.compile(r"[<>|=]?(\?|[biufcSUV]\d{1,9}|[mM]8(\[\d{0,6}[A-Za-zμ]{1,7}\])?)\Z")
MASKED = ("boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")


class EncodeError(ValueError):
    """The value cannot travel; the text says which part of it and why."""


class _Encoder:
    def __init__(self, max_bytes):
        self.out = bytearray(MAGIC)
        self.max_bytes = max_bytes
        self.values = 0
        self.table = {
            type(None): self._none, bool: self._bool, int: self._int, float: self._float, complex: self._complex,
            str: self._str, bytes: self._bytes, bytearray: self._bytearray, list: self._list, tuple: self._tuple,
            set: self._set, frozenset: self._frozenset, dict: self._dict, range: self._range,
        }
        for module, names in _KNOWN.items():
            loaded = sys.modules.get(module)  # a type of a module nobody loaded cannot be met
            for name, method in names.items():
                kind = getattr(loaded, name, None)
                if kind is not None:
                    self.table[kind] = getattr(self, method)
        self.numpy = sys.modules.get("numpy")
        self.pandas = sys.modules.get("pandas")

    def value(self, value, depth):
        if depth > MAX_DEPTH:
            raise EncodeError(f"nested deeper than {MAX_DEPTH}")
        self.counted(1)
        method = self.table.get(type(value))
        if method is None and self.numpy is not None and isinstance(value, self.numpy.generic):
            method = self._scalar
        if method is None and self.pandas is not None and type(value).__module__.startswith("pandas."):
            method = self._pandas_other(value)
        if method is None:
            kind = type(value)
            raise EncodeError(f"{kind.__module__}.{kind.__qualname__} cannot travel")
        method(value, depth)
        self.room(0)

    def counted(self, weight):
        self.values += weight
        if self.values > MAX_VALUES:
            raise EncodeError(f"more than {MAX_VALUES} values")

    def room(self, size):
        if len(self.out) + size > self.max_bytes:
            raise EncodeError(f"larger than {self.max_bytes} bytes")

    def tag(self, tag):
        self.out += tag

    def number(self, n):
        while n > 127:
            self.out.append(n & 127 | 128)
            n >>= 7
        self.out.append(n)

    def block(self, data):
        self.room(len(data))
        self.number(len(data))
        self.out += data

    def text(self, text):
        self.block(text.encode("utf-8", "surrogatepass"))

    def _none(self, value, depth):
        self.tag(b"N")

    def _bool(self, value, depth):
        self.tag(b"T" if value else b"F")

    def _int(self, value, depth):
        self.tag(b"I")
        self.block(value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def _float(self, value, depth):
        self.tag(b"D")
        self.out += struct.pack("<d", value)

    def _complex(self, value, depth):
        self.tag(b"C")
        self.out += struct.pack("<dd", value.real, value.imag)

    def _str(self, value, depth):
        self.tag(b"S")
        self.text(value)

    def _bytes(self, value, depth):
        self.tag(b"B")
        self.block(value)

    def _bytearray(self, value, depth):
        self.tag(b"A")
        self.block(value)

    def _many(self, tag, values, depth):
        self.tag(tag)
        self.number(len(values))
        for value in values:
            self.value(value, depth + 1)

    def _list(self, value, depth):
        self._many(b"L", value, depth)

    def _tuple(self, value, depth):
        self._many(b"U", value, depth)

    def _set(self, value, depth):
        self._many(b"E", value, depth)

    def _frozenset(self, value, depth):
        self._many(b"Z", value, depth)

    def _dict(self, value, depth):
        self.tag(b"M")
        self.number(len(value))
        for key, content in value.items():
            self.value(key, depth + 1)
            self.value(content, depth + 1)

    def _range(self, value, depth):
        self.tag(b"r")
        for n in (value.start, value.stop, value.step):
            self.value(n, depth + 1)

    # dates

    def _date(self, value, depth):
        self.tag(b"d")
        self.number(value.toordinal())

    def _time(self, value, depth):
        self.tag(b"t")
        self._clock(value)
        self._zone(value.tzinfo, None, depth)

    def _datetime(self, value, depth):
        self.tag(b"w")
        self.number(value.toordinal())
        self._clock(value)
        self._zone(value.tzinfo, value, depth)

    def _clock(self, value):
        self.out += bytes((value.hour, value.minute, value.second, value.fold))
        self.number(value.microsecond)

    def _timedelta(self, value, depth):
        self.tag(b"e")
        for n in (value.days, value.seconds, value.microseconds):
            self.value(n, depth + 1)

    def _zone(self, zone, moment, depth):
        """None, a name, or an offset. A zone without a name travels as the offset it gives this moment."""
        name = zone_name(zone)
        if zone is None or name is not None:
            self.value(name, depth + 1)
            return
        offset = zone.utcoffset(moment)
        if offset is None:
            raise EncodeError(f"time zone {zone!r} cannot travel")
        self.value(offset, depth + 1)

    def _decimal(self, value, depth):
        self.tag(b"m")
        self.text(str(value))

    # numpy

    def _dtype(self, dtype, depth):
        if dtype.fields is not None:
            self.tag(b"V")
            self.number(len(dtype.names))
            for name in dtype.names:
                self.counted(1)
                base, shape = (dtype.fields[name][0].subdtype or (dtype.fields[name][0], ()))
                self.text(name)
                self._shape(shape)
                self._dtype(base, depth + 1)
            if self.numpy.dtype([(n, dtype.fields[n][0]) for n in dtype.names]) != dtype:
                raise EncodeError(f"the layout of {dtype} cannot travel")
            return
        if not DTYPE.match(dtype.str) or dtype.hasobject:
            raise EncodeError(f"numpy dtype {dtype} cannot travel")
        self.tag(b"d")
        self.text(dtype.str)

    def _shape(self, shape):
        self.number(len(shape))
        for n in shape:
            self.number(n)

    def _array(self, value, depth):
        if value.dtype.hasobject and value.dtype.fields is None:
            self.tag(b"o")
            self._shape(value.shape)
            for item in value.ravel().tolist():
                self.value(item, depth + 1)
            return
        self.room(value.nbytes)
        self.tag(b"a")
        self._dtype(value.dtype, depth)
        self._shape(value.shape)
        self.block(value.tobytes())

    def _scalar(self, value, depth):
        if not value.dtype.itemsize:
            value = self.numpy.asarray(value)  # an empty text has bytes, which its own dtype denies
        self.tag(b"s")
        self._dtype(value.dtype, depth)
        self.block(value.tobytes())

    # pandas

    def _pandas_other(self, value):
        pandas = self.pandas
        for kind, method in ((pandas.Index, self._index), (pandas.api.extensions.ExtensionArray, self._column)):
            if isinstance(value, kind):
                return method
        return None

    def _series(self, value, depth):
        self.counted(HEAVY)
        self.tag(b"p")
        self._column(value.array, depth + 1)
        self.value(value.index, depth + 1)
        self.value(value.name, depth + 1)

    def _frame(self, value, depth):
        self.counted(HEAVY)
        self.tag(b"f")
        self.number(value.shape[1])
        for i in range(value.shape[1]):
            self._column(value.iloc[:, i].array, depth + 1)
        self.value(value.index, depth + 1)
        self.value(value.columns, depth + 1)

    def _index(self, value, depth):
        self.counted(HEAVY)
        pandas = self.pandas
        kind = type(value).__name__
        if isinstance(value, pandas.RangeIndex):
            self.tag(b"g")
            for n in (value.start, value.stop, value.step):
                self.value(int(n), depth + 1)
            self.value(value.name, depth + 1)
        elif isinstance(value, pandas.MultiIndex):
            self.tag(b"x")
            self.number(value.nlevels)
            for level, codes, name in zip(value.levels, value.codes, value.names):
                self.value(level, depth + 1)
                self.value(self.numpy.asarray(codes), depth + 1)
                self.value(name, depth + 1)
        elif kind in _INDEXES:
            self.tag(b"i")
            self._column(value.array, depth + 1)
            freq = getattr(value, "freqstr", None) if kind in ("DatetimeIndex", "TimedeltaIndex") else None
            self.value(freq, depth + 1)
            self.value(value.name, depth + 1)
        else:
            raise EncodeError(f"pandas {kind} cannot travel")

    def _column(self, array, depth):
        """An array of pandas: its dtype decides what it is made of."""
        self.counted(HEAVY)
        pandas, numpy, dtype = self.pandas, self.numpy, array.dtype
        if isinstance(dtype, numpy.dtype) or type(dtype).__name__ in ("PandasDtype", "NumpyEADtype"):
            plain = numpy.asarray(array)
            self.tag(b"n")
            self._array(plain, depth)
        elif isinstance(dtype, pandas.DatetimeTZDtype):
            name = zone_name(dtype.tz)
            self.tag(b"z")
            self._array(array.tz_convert("UTC").tz_localize(None).to_numpy(), depth)
            offset = None if name is not None else dtype.tz.utcoffset(None)
            if name is None and offset is None:
                raise EncodeError(f"time zone {dtype.tz!r} cannot travel")
            self.value(name if name is not None else offset, depth + 1)
        elif isinstance(dtype, pandas.CategoricalDtype):
            self.tag(b"c")
            self._array(numpy.asarray(array.codes), depth)
            self.value(dtype.categories, depth + 1)
            self.value(bool(dtype.ordered), depth + 1)
        elif str(dtype) in MASKED:
            self.tag(b"k")
            self.text(str(dtype))
            self._array(array._data, depth)
            self._array(array._mask, depth)
        elif isinstance(dtype, pandas.StringDtype):
            self.tag(b"q")
            self._array(numpy.asarray(array, dtype=object), depth)
        elif isinstance(dtype, pandas.PeriodDtype):
            self.tag(b"P")
            self._array(array.asi8, depth)
            self.text(dtype.freq.freqstr)
        elif isinstance(dtype, pandas.IntervalDtype):
            self.tag(b"v")
            self.value(array.left, depth + 1)
            self.value(array.right, depth + 1)
            self.text(array.closed)
        else:
            raise EncodeError(f"pandas dtype {dtype} cannot travel")

    def _timestamp(self, value, depth):
        self.counted(HEAVY)
        self.tag(b"W")
        self.out += struct.pack("<q", value.value)
        self._zone(value.tzinfo, value.to_pydatetime(warn=False), depth)

    def _pandas_timedelta(self, value, depth):
        self.counted(HEAVY)
        self.tag(b"G")
        self.out += struct.pack("<q", value.value)

    def _period(self, value, depth):
        self.counted(HEAVY)
        self.tag(b"Q")
        self.value(value.ordinal, depth + 1)
        self.text(value.freqstr)

    def _interval(self, value, depth):
        self.counted(HEAVY)
        self.tag(b"J")
        self.value(value.left, depth + 1)
        self.value(value.right, depth + 1)
        self.text(value.closed)

    def _nat(self, value, depth):
        self.tag(b"0")

    def _na(self, value, depth):
        self.tag(b"1")


_INDEXES = ("Index", "NumericIndex", "Int64Index", "UInt64Index", "Float64Index", "DatetimeIndex", "TimedeltaIndex",
            "CategoricalIndex", "PeriodIndex", "IntervalIndex")
_KNOWN = {
    "datetime": {"date": "_date", "time": "_time", "datetime": "_datetime", "timedelta": "_timedelta"},
    "decimal": {"Decimal": "_decimal"},
    "numpy": {"ndarray": "_array"},
    "pandas": {"Series": "_series", "DataFrame": "_frame", "Timestamp": "_timestamp", "Timedelta": "_pandas_timedelta",
               "Period": "_period", "Interval": "_interval"},
    "pandas._libs.tslibs.nattype": {"NaTType": "_nat"},
    "pandas._libs.missing": {"NAType": "_na"},
}


def zone_name(zone):
    """The name of an IANA time zone or "UTC"; None: it has none."""
    if zone is None:
        return None
    if type(zone).__name__ == "timezone" and type(zone).__module__ == "datetime":
        return "UTC" if not zone.utcoffset(None) else None
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return name if isinstance(name, str) and ZONE.match(name) else None


def encode(value, max_bytes=MAX_BYTES):
    """The value as bytes, or EncodeError."""
    encoder = _Encoder(max_bytes)
    try:
        encoder.value(value, 0)
    except RecursionError:
        raise EncodeError("nested too deep") from None
    return bytes(encoder.out)
