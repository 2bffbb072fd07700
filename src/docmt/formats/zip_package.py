"""Zip packages (office documents, e-books): read within limits, written with other contents for some members.

Members that do not change are copied with their headers, bit for bit. Limits are those for files of strangers: a
package with too many or too large members, a path out of the package or an encrypted member is refused.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from docmt.core.errors import DocmtError

MAX_MEMBERS = 5_000
MAX_BYTES = 200 * 2**20
"""Bytes of all members that are read, unpacked."""
MAX_RATIO = 100
"""Unpacked bytes for each packed byte of a member, above `FREE_BYTES`."""
FREE_BYTES = 2**20
_BLOCK = 2**16
_ENCRYPTED, _HAS_DESCRIPTOR = 0x1, 0x8
_ZIP64 = 0x0001
_SIGNATURES = (b"PK\3\4", b"PK\5\6", b"PK\7\x08")
"""First bytes of packages: a member, an empty package, one in parts."""
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")


class _Record(NamedTuple):
    """Sizes that the central directory tells of a member."""

    crc: int
    packed: int
    size: int
    flags: int
    offset: int


class ZipPackage:
    """A zip file in memory."""

    def __init__(self, data: bytes, path: str) -> None:
        """Read the directory. path: name of the file in messages. Raises DocmtError for unsafe and damaged files."""
        self._data, self._path = data, path
        self._read_bytes = 0
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                self._members = file.infolist()
                self._comment = file.comment
                self._directory = file.start_dir
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OSError) as error:
            if not data.startswith(_SIGNATURES):
                raise DocmtError(
                    f"{path} is not a zip package, as office documents and e-books are. Check its name, or save it "
                    "again."
                ) from error
            raise DocmtError(f"{path} is damaged, perhaps cut short. Save it again and retry.") from error
        self._check()
        self.names = [member.filename for member in self._members]
        """names of the members in their order"""

    def _check(self) -> None:
        if len(self._members) > MAX_MEMBERS:
            raise DocmtError(f"{self._path} has {len(self._members):,} members. docmt reads at most {MAX_MEMBERS:,}.")
        if any(member.header_offset >= self._directory for member in self._members):
            raise DocmtError(f"{self._path} is damaged: a member begins after the directory. Save it again and retry.")
        if sum(member.file_size for member in self._members) > 10 * MAX_BYTES:
            raise DocmtError(f"{self._path} unpacks to more than {10 * MAX_BYTES // 2**20:,} MiB. It is refused.")
        names: set[str] = set()
        for member in self._members:
            name = member.filename
            if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/") or ":" in name[:3]:
                raise DocmtError(f"{self._path} has a member {name!r}, a path out of the package. It is refused.")
            if member.flag_bits & _ENCRYPTED:
                raise DocmtError(f"{self._path} is encrypted. Save it without a password, and translate that.")
            if name in names:
                raise DocmtError(f"{self._path} has two members {name!r}. Save it again and retry.")
            names.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def read(self, name: str) -> bytes:
        """Return the contents of a member. Raises DocmtError if it is missing, damaged or too large."""
        try:
            with zipfile.ZipFile(io.BytesIO(self._data)) as package, package.open(name) as file:
                info = package.getinfo(name)
                limit = MAX_BYTES - self._read_bytes
                blocks, size = [], 0
                while block := file.read(_BLOCK):
                    size += len(block)  # the directory may lie
                    if size > limit or size > FREE_BYTES + MAX_RATIO * info.compress_size:
                        raise DocmtError(f"{self._path}: {name} unpacks to too many bytes. It is refused.")
                    blocks.append(block)
        except KeyError as error:
            raise DocmtError(f"{self._path} has no {name}: it is incomplete. Save it again and retry.") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
            raise DocmtError(f"{self._path}: {name} is damaged ({error}). Save it again and retry.") from error
        self._read_bytes += size
        return b"".join(blocks)

    def replace(self, contents: Mapping[str, bytes]) -> bytes:
        """Return the package with other contents for these members. All else stays, bit for bit."""
        starts = sorted({member.header_offset for member in self._members} | {self._directory})
        ends = dict(pairwise(starts))
        output = io.BytesIO()
        output.write(self._data[: starts[0]])
        records = []
        for member in sorted(self._members, key=lambda member: member.header_offset):
            offset = output.tell()
            if member.filename in contents:
                record = self._write_member(output, member, contents[member.filename])
            else:
                output.write(self._data[member.header_offset : ends[member.header_offset]])
                record = _Record(member.CRC, member.compress_size, member.file_size, member.flag_bits, offset)
            records.append((member, record))
        order = {id(member): record for member, record in records}
        start = output.tell()
        for member in self._members:
            output.write(_central_header(member, order[id(member)]))
        size, count = output.tell() - start, len(self._members)
        output.write(_END.pack(b"PK\5\6", 0, 0, count, count, size, start, len(self._comment)) + self._comment)
        return output.getvalue()

    def _write_member(self, output: io.BytesIO, member: zipfile.ZipInfo, data: bytes) -> _Record:
        """Write a member with new data, and the compression and attributes of the old one."""
        method = zipfile.ZIP_STORED if member.compress_type == zipfile.ZIP_STORED else zipfile.ZIP_DEFLATED
        packed = data
        if method == zipfile.ZIP_DEFLATED:
            compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
            packed = compressor.compress(data) + compressor.flush()
        flags = member.flag_bits & ~_HAS_DESCRIPTOR
        record = _Record(zlib.crc32(data), len(packed), len(data), flags, output.tell())
        member.compress_type = method
        name = _encode_name(member)
        extra = _drop_zip64(member.extra)
        time, date = _dos_time(member)
        version = min(member.extract_version, 20)
        sizes = (record.crc, record.packed, record.size, len(name), len(extra))
        output.write(_LOCAL.pack(b"PK\3\4", version, flags, method, time, date, *sizes) + name + extra + packed)
        return record


def _central_header(member: zipfile.ZipInfo, record: _Record) -> bytes:
    name, extra = _encode_name(member), _drop_zip64(member.extra)
    time, date = _dos_time(member)
    return (
        _CENTRAL.pack(
            b"PK\1\2",
            member.create_version | member.create_system << 8,
            member.extract_version | member.reserved << 8,
            record.flags,
            member.compress_type,
            time,
            date,
            record.crc,
            record.packed,
            record.size,
            len(name),
            len(extra),
            len(member.comment),
            0,
            member.internal_attr,
            member.external_attr,
            record.offset,
        )
        + name
        + extra
        + member.comment
    )


def _encode_name(member: zipfile.ZipInfo) -> bytes:
    return member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437")


def _dos_time(member: zipfile.ZipInfo) -> tuple[int, int]:
    year, month, day, hour, minute, second = member.date_time
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day


def _drop_zip64(extra: bytes) -> bytes:
    """Return extra fields without that of sizes over 4 GiB, which no member has here."""
    kept, position = b"", 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if kind != _ZIP64:
            kept += extra[position : position + 4 + size]
        position += 4 + size
    return kept + extra[position:]
