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
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack without bounds
                raise DocmtError(f"{self._path}: {name} is packed in a way that is not read. Save it again and retry.")
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
        ends, offsets, changed = dict(pairwise(starts)), dict[str, int](), dict[str, bytes]()
        output = bytearray(self._data[: starts[0]])
        for member in sorted(self._members, key=lambda member: member.header_offset):
            name, start = member.filename, member.header_offset
            offsets[name] = len(output)
            if name in contents:
                changed[name], packed = _pack(member, contents[name])
                header = _drop_zip64(self._copy_header(start, "<26x2H"))
                header[6:10], header[14:26] = changed[name][:4], changed[name][4:]
                output += header + packed
            else:
                output += self._data[start : ends[start]]
        first, position = len(output), self._directory
        for member in self._members:
            header = self._copy_header(position, "<28x3H12x")
            position, header = position + len(header), _drop_zip64(header)
            sizes = member.CRC, member.compress_size, member.file_size
            fields = struct.pack("<2H3I", member.flag_bits, member.compress_type, *sizes)
            fields = changed.get(member.filename, fields)
            header[8:12], header[16:28] = fields[:4], fields[4:]
            struct.pack_into("<I", header, 42, offsets[member.filename])
            output += header
        count, comment = len(self._members), self._comment
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(output) - first, first, len(comment))
        return bytes(output + end + comment)

    def _copy_header(self, start: int, form: str) -> bytearray:
        """Return a header with what follows it. form: where its lengths are."""
        size = struct.calcsize(form) + sum(struct.unpack_from(form, self._data, start))
        return bytearray(self._data[start : start + size])


def _drop_zip64(header: bytearray) -> bytearray:
    """Return a header without the field of sizes over 4 GiB, as no member has them here, and some readers trust it."""
    size, place = (30, 26) if header.startswith(b"PK\3\4") else (46, 28)  # without what follows, and of the lengths
    name, extra = struct.unpack_from("<2H", header, place)
    position, end = size + name, size + name + extra
    while position + 4 <= end:
        kind, length = struct.unpack_from("<2H", header, position)
        following = min(position + 4 + length, end)
        if kind == _ZIP64:
            del header[position:following]
            end -= following - position
        else:
            position = following
    struct.pack_into("<H", header, place + 2, end - size - name)
    return header


def _pack(member: zipfile.ZipInfo, data: bytes) -> tuple[bytes, bytes]:
    """Return the fields of both headers of a member with new data, and the data as packed.

    The fields are flags and method, then checksum and sizes. A stored member stays one.
    """
    method, packed = zipfile.ZIP_STORED, data
    if member.compress_type != zipfile.ZIP_STORED:
        compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        method, packed = zipfile.ZIP_DEFLATED, compressor.compress(data) + compressor.flush()
    flags = member.flag_bits & ~_HAS_DESCRIPTOR
    return struct.pack("<HHIII", flags, method, zlib.crc32(data), len(packed), len(data)), packed
