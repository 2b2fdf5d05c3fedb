"""Python values from bytes: the reading side of encode.py.

What comes out of a guest is hostile. This makes values of a fixed list of types and nothing else; it never
unpickles, evaluates or imports what the bytes name. numpy and pandas are used only where this side has
them. Beside the limits of encode.py there is one on keys with one and the same hash. pandas' own tables
are not asked about a guest's labels at all: their hash is 32 bits of the caller's choosing, and numbers that
share one are made by the million.
"""
import re
import struct
from collections import Counter

from .encode import DTYPE, HEAVY, MAGIC, MASKED, MAX_BYTES, MAX_DEPTH, MAX_VALUES, ZONE, zone_name

MAX_CLASHES = 1 << 24  # comparisons of keys with the same hash, in all
FREQ = re.compile(r"[A-Za-z0-9\-]{1,32}\Z")
CLOSED = ("left", "right", "both", "neither")


class DecodeError(ValueError):
    """The bytes are not what an encoder makes, or need what this side does not have."""


class _Decoder:
    def __init__(self, data):
        self.data = memoryview(data)
        self.at = 0
        self.values = self.clashes = 0
        if self.take(len(MAGIC)) != MAGIC:
            raise DecodeError("not an encoded value")

    def take(self, n):
        if n > len(self.data) - self.at:
            raise DecodeError("it ends too early")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self):
        n = shift = 0
        while True:
            byte = self.take(1)[0]
            n |= (byte & 127) << shift
            if byte < 128:
                return n
            shift += 7
            if shift > 56:
                raise DecodeError("a length that is too long")

    def block(self):
        return self.take(self.number())

    def text(self):
        return str(self.block(), "utf-8", "surrogatepass")

    def matching(self, pattern):
        text = self.text()
        if not pattern.match(text):
            raise DecodeError(f"{text[:40]!r} is no name known here")
        return text

    def value(self, depth):
        if depth > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH}")
        tag = self.take(1)[0]
        self.counted(HEAVY if tag in _OF_PANDAS else 1)
        method = _READERS.get(tag)
        if method is None:
            raise DecodeError("a type that is not known here")
        return method(self, depth + 1)

    def counted(self, weight):
        self.values += weight
        if self.values > MAX_VALUES:
            raise DecodeError(f"more than {MAX_VALUES} values")

    def clashed(self, comparisons):
        self.clashes += comparisons
        if self.clashes > MAX_CLASHES:
            raise DecodeError("too many keys with the same hash")

    def spread(self, keys):
        """Keys of a guest's choosing must not make a dictionary crawl: equal hashes are counted."""
        hashes = Counter(map(hash, keys))
        if len(hashes) < len(keys):
            self.clashed(sum(n * n for n in hashes.values() if n > 1))
        return keys

    def spread_labels(self, labels):
        """The same for labels, which may be equal: what counts is how many different ones share a hash."""
        try:
            hashes = Counter(map(hash, labels))
        except TypeError:
            return  # such labels can be put into no table
        if len(hashes) == len(labels):
            return
        found = {}
        for label in labels:
            key = hash(label)
            if hashes[key] == 1 or (type(label) is float and label != label):
                continue
            others = found.setdefault(key, [])
            self.clashed(len(others) if len(others) > 1 else 0)
            if label not in others:
                others.append(label)

    def typed(self, depth, *kinds):
        value = self.value(depth)
        if type(value) not in kinds:
            raise DecodeError(f"{type(value).__name__} where something else belongs")
        return value

    def _int(self, depth):
        return int.from_bytes(self.block(), "little", signed=True)

    def _float(self, depth):
        return struct.unpack("<d", self.take(8))[0]

    def _complex(self, depth):
        return complex(*struct.unpack("<dd", self.take(16)))

    def _many(self, depth):
        return [self.value(depth) for _ in range(self.count())]

    def count(self):
        n = self.number()
        if n > len(self.data) - self.at:  # every value takes a byte at least
            raise DecodeError("it ends too early")
        return n

    def _hashed(self, depth):
        return self.spread(self._many(depth))

    def _dict(self, depth):
        keys, contents = [], []
        for _ in range(self.count()):
            keys.append(self.value(depth))
            contents.append(self.value(depth))
        return dict(zip(self.spread(keys), contents))

    def _range(self, depth):
        return range(*(self.typed(depth, int) for _ in range(3)))

    # dates

    def _date(self, depth):
        import datetime
        return datetime.date.fromordinal(self.number())

    def _clock(self):
        hour, minute, second, fold = self.take(4)
        return dict(hour=hour, minute=minute, second=second, fold=fold, microsecond=self.number())

    def _time(self, depth):
        import datetime
        clock = self._clock()
        return datetime.time(**clock, tzinfo=self._zone(depth))

    def _datetime(self, depth):
        import datetime
        day = datetime.date.fromordinal(self.number())
        clock = self._clock()
        return datetime.datetime(day.year, day.month, day.day, **clock, tzinfo=self._zone(depth))

    def _timedelta(self, depth):
        import datetime
        return datetime.timedelta(*(self.typed(depth, int) for _ in range(3)))

    def _zone(self, depth):
        import datetime
        value = self.typed(depth, type(None), str, datetime.timedelta)
        if value is None:
            return None
        if isinstance(value, datetime.timedelta):
            return datetime.timezone(value)
        return zone_of(value)

    def _decimal(self, depth):
        import decimal
        text = self.text()
        try:
            return decimal.Decimal(text)
        except decimal.InvalidOperation:
            raise DecodeError("no decimal number") from None

    # numpy

    def _shape(self):
        return tuple(self.number() for _ in range(self.small(32)))

    def small(self, most):
        n = self.number()
        if n > most:
            raise DecodeError("too many parts")
        return n

    def _dtype(self, numpy, depth):
        if depth > 16:
            raise DecodeError("a dtype nested too deep")
        tag = self.take(1)
        if tag == b"d":
            return numpy.dtype(self.matching(DTYPE))
        if tag != b"V":
            raise DecodeError("no dtype")
        fields = []
        for _ in range(self.small(4096)):
            self.counted(1)
            name, shape = self.text(), self._shape()
            fields.append((name, self._dtype(numpy, depth + 1), shape))
        return numpy.dtype(fields)

    def _array(self, depth):
        numpy = _need("numpy")
        dtype, shape = self._dtype(numpy, 0), self._shape()
        return _filled(numpy, dtype, shape, self.block())

    def _objects(self, depth):
        numpy = _need("numpy")
        shape, total = self._shape(), 1
        for n in shape:
            total *= n
        if total > len(self.data) - self.at:
            raise DecodeError("it ends too early")
        flat = numpy.empty(total, dtype=object)
        for i in range(total):
            flat[i] = self.value(depth)
        return flat.reshape(shape)

    def _scalar(self, depth):
        numpy = _need("numpy")
        dtype = self._dtype(numpy, 0)
        return _filled(numpy, dtype, (), self.block())[()]

    def _plain(self, depth):
        """An array without objects that stands in a pandas one."""
        tag = self.take(1)
        if tag == b"a":
            return self._array(depth)
        if tag == b"o":
            return self._objects(depth)
        raise DecodeError("no array")

    # pandas

    def _column(self, depth):
        pandas = _need("pandas")
        self.counted(HEAVY)
        tag = self.take(1)
        method = _COLUMNS.get(bytes(tag))
        if method is None:
            raise DecodeError("no column")
        return method(self, pandas, depth + 1)

    def _again(self, depth):
        """An extension array as a value of its own: its tag has been read already."""
        self.at -= 1
        return self._column(depth)

    def _column_plain(self, pandas, depth):
        return self._plain(depth)

    def _column_zoned(self, pandas, depth):
        import datetime
        moments, zone = self._plain(depth), self.typed(depth, str, datetime.timedelta)
        if moments.dtype.kind != "M":
            raise DecodeError("no moments")
        if isinstance(zone, str):
            zone_of(zone)
        else:
            zone = datetime.timezone(zone)
        return pandas.DatetimeIndex(moments).tz_localize("UTC").tz_convert(zone).array

    def _column_categories(self, pandas, depth):
        codes, categories, ordered = self._plain(depth), self._labels(depth), self.typed(depth, bool)
        if codes.dtype.kind != "i":
            raise DecodeError("no categories")
        return pandas.Categorical.from_codes(codes, dtype=pandas.CategoricalDtype(categories, ordered=ordered))

    def _column_masked(self, pandas, depth):
        name = self.text()
        data, mask = self._plain(depth), self._plain(depth)
        if name not in MASKED or mask.dtype.kind != "b" or data.shape != mask.shape or data.ndim != 1:
            raise DecodeError("no masked array")
        kind = {"b": "BooleanArray", "I": "IntegerArray", "U": "IntegerArray", "F": "FloatingArray"}[name[0]]
        if data.dtype != name.lower().replace("boolean", "bool"):
            raise DecodeError("no masked array")
        return getattr(pandas.arrays, kind)(data, mask)

    def _column_texts(self, pandas, depth):
        return pandas.array(self._plain(depth), dtype="string")

    def _column_periods(self, pandas, depth):
        numpy = _need("numpy")
        ordinals, freq = self._plain(depth), self.matching(FREQ)
        if ordinals.dtype != numpy.int64:
            raise DecodeError("no periods")
        return pandas.arrays.PeriodArray(ordinals, dtype=pandas.PeriodDtype(freq))

    def _column_intervals(self, pandas, depth):
        left, right, closed = self._labels(depth), self._labels(depth), self.text()
        if closed not in CLOSED:
            raise DecodeError("no intervals")
        return pandas.arrays.IntervalArray.from_arrays(left, right, closed=closed)

    def _rows(self, depth):
        pandas = _need("pandas")
        index = self.value(depth)
        if not isinstance(index, pandas.Index):
            raise DecodeError("no index")
        return index

    def _labels(self, depth):
        """An index that others are made of, which spells it out: a range of two numbers could be of any length."""
        index = self._rows(depth)
        if len(index) > MAX_VALUES:
            raise DecodeError(f"more than {MAX_VALUES} labels")
        if isinstance(index, _need("pandas").RangeIndex):
            self.counted(len(index))  # others came with their bytes
        else:
            self._told_unique(index)
        return index

    def _told_unique(self, index):
        """pandas asks every index that others are made of whether it is unique. It is told."""
        numpy, pandas = _need("numpy"), _need("pandas")
        if isinstance(index, pandas.MultiIndex):
            self.counted(len(index) * index.nlevels)
        if isinstance(index, (pandas.DatetimeIndex, pandas.TimedeltaIndex, pandas.PeriodIndex)):
            plain = index.asi8
        else:
            plain = index.codes if isinstance(index, pandas.CategoricalIndex) else index.to_numpy()
        if isinstance(index, (pandas.IntervalIndex, pandas.MultiIndex)) or plain.dtype.kind not in "biufcmM":
            labels = list(index)
            unique = len(set(self.spread(labels))) == len(labels)
        else:
            plain = numpy.sort(plain)
            unique = not (plain[1:] == plain[:-1]).any()
        index._cache["is_unique"] = unique  # where its lazy properties are kept

    def _series(self, depth):
        pandas = _need("pandas")
        column, index, name = self._column(depth), self._rows(depth), self.value(depth)
        return pandas.Series(column, index=index, name=name, dtype=column.dtype)

    def _frame(self, depth):
        pandas = _need("pandas")
        columns = [self._column(depth) for _ in range(self.count())]
        index, names = self._rows(depth), self._rows(depth)
        frame = pandas.DataFrame({i: pandas.Series(c, index=index, dtype=c.dtype) for i, c in enumerate(columns)},
                                 index=index)
        frame.columns = names
        return frame

    def _index(self, depth):
        pandas = _need("pandas")
        column, freq, name = self._column(depth), self.typed(depth, str, type(None)), self.value(depth)
        index = pandas.Index(column, dtype=column.dtype, name=name)
        if index.dtype == object:
            self.spread_labels(index.tolist())
        if freq is not None and FREQ.match(freq):
            kind = {"M": pandas.DatetimeIndex, "m": pandas.TimedeltaIndex}.get(column.dtype.kind)
            if kind is None:
                raise DecodeError("no index with a frequency")
            index = kind(column, freq=freq, name=name)
        return index

    def _range_index(self, depth):
        pandas = _need("pandas")
        start, stop, step = (self.typed(depth, int) for _ in range(3))
        return pandas.RangeIndex(start, stop, step, name=self.value(depth))

    def _multi_index(self, depth):
        pandas = _need("pandas")
        levels, codes, names = [], [], []
        for _ in range(self.small(256)):
            levels.append(self._labels(depth))
            codes.append(self._codes(depth))
            names.append(self.value(depth))
        return pandas.MultiIndex(levels=levels, codes=codes, names=names)

    def _codes(self, depth):
        codes = self._plain(depth)
        if codes.dtype.kind != "i" or codes.ndim != 1:
            raise DecodeError("no codes")
        return codes

    def _timestamp(self, depth):
        pandas = _need("pandas")
        moment = pandas.Timestamp(struct.unpack("<q", self.take(8))[0])
        zone = self._zone(depth)
        if zone is None:
            return moment
        name = zone_name(zone)
        return moment.tz_localize("UTC").tz_convert(zone if name is None else name)

    def _pandas_timedelta(self, depth):
        return _need("pandas").Timedelta(struct.unpack("<q", self.take(8))[0])

    def _period(self, depth):
        pandas = _need("pandas")
        return pandas.Period(ordinal=self.typed(depth, int), freq=self.matching(FREQ))

    def _interval(self, depth):
        pandas = _need("pandas")
        left, right, closed = self.value(depth), self.value(depth), self.text()
        if closed not in CLOSED:
            raise DecodeError("no interval")
        return pandas.Interval(left, right, closed)


_READERS = {ord(tag): method for tag, method in {
    "N": lambda d, depth: None, "T": lambda d, depth: True, "F": lambda d, depth: False,
    "I": _Decoder._int, "D": _Decoder._float, "C": _Decoder._complex, "S": lambda d, depth: d.text(),
    "B": lambda d, depth: bytes(d.block()), "A": lambda d, depth: bytearray(d.block()), "L": _Decoder._many,
    "U": lambda d, depth: tuple(d._many(depth)), "E": lambda d, depth: set(d._hashed(depth)),
    "Z": lambda d, depth: frozenset(d._hashed(depth)), "M": _Decoder._dict, "r": _Decoder._range,
    "d": _Decoder._date, "t": _Decoder._time, "w": _Decoder._datetime, "e": _Decoder._timedelta,
    "m": _Decoder._decimal, "a": _Decoder._array, "o": _Decoder._objects, "s": _Decoder._scalar,
    "p": _Decoder._series, "f": _Decoder._frame, "i": _Decoder._index, "g": _Decoder._range_index,
    "x": _Decoder._multi_index, "W": _Decoder._timestamp, "G": _Decoder._pandas_timedelta, "Q": _Decoder._period,
    "J": _Decoder._interval, "0": lambda d, depth: _need("pandas").NaT, "1": lambda d, depth: _need("pandas").NA,
    **{tag: lambda d, depth: d._again(depth) for tag in "nzckqPv"},
}.items()}
_OF_PANDAS = frozenset(b"pfigxWGQJ")
_COLUMNS = {b"n": _Decoder._column_plain, b"z": _Decoder._column_zoned, b"c": _Decoder._column_categories,
            b"k": _Decoder._column_masked, b"q": _Decoder._column_texts, b"P": _Decoder._column_periods,
            b"v": _Decoder._column_intervals}


def _need(name):
    """numpy or pandas of this side. The names are constants of this file."""
    try:
        return __import__(name)
    except ImportError:
        raise DecodeError(f"it needs {name}, which is not installed on this side") from None


def _filled(numpy, dtype, shape, data):
    total = 1
    for n in shape:
        total *= n
    if total * dtype.itemsize != len(data) or total > MAX_BYTES:
        raise DecodeError("an array whose size does not fit its shape")
    array = numpy.frombuffer(data, dtype=dtype).reshape(shape).copy() if dtype.itemsize else numpy.zeros(shape, dtype)
    _sane(numpy, array)
    return array


def _sane(numpy, array):
    """Bits that no array of that type can have would make numpy misbehave later."""
    if array.dtype.fields is not None:
        for name in array.dtype.names:
            _sane(numpy, array[name])
    elif array.dtype.kind == "b":
        array[...] = numpy.ascontiguousarray(array).view(numpy.uint8) != 0
    elif array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = numpy.ascontiguousarray(array).reshape(-1).view(numpy.dtype(numpy.uint32).newbyteorder(
            array.dtype.byteorder))
        if codes.max() > 0x10FFFF:
            raise DecodeError("a character that is none")


def zone_of(name):
    import datetime
    if not ZONE.match(name):
        raise DecodeError("no time zone")
    if name == "UTC":
        return datetime.timezone.utc
    import zoneinfo
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        raise DecodeError(f"time zone {name} is not known on this side") from None


def decode(data):
    """The value, or DecodeError. Whatever the bytes are, nothing else happens."""
    try:
        decoder = _Decoder(data)
        value = decoder.value(0)
        if decoder.at != len(decoder.data):
            raise DecodeError("something follows the value")
        return value
    except DecodeError:
        raise
    except RecursionError:
        raise DecodeError("nested too deep") from None
    except Exception as e:  # numpy, pandas and datetime refuse bad values with exceptions of many types
        raise DecodeError(f"a value that cannot be: {type(e).__name__}: {e}"[:300]) from None
