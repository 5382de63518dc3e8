//! One declaration per on-disk structure gives its type, decoder, encoder and field listing.

/// One field of a decoded structure, for listings (`fsglass dump`, the hex view of the page). Not on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Kernel name of the field, halves joined.
    pub name: &'static str,
    /// Byte offset of the field (of its low half) in the structure.
    pub offset: u32,
    /// Bytes covered at `offset`.
    pub len: u32,
    /// One line of meaning.
    pub doc: &'static str,
    /// The decoded value.
    pub value: FieldValue,
}

/// Value of a [`Field`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// Raw bytes: a UUID, label or opaque area.
    Bytes(Vec<u8>),
    /// An array of 32-bit numbers.
    Words(Vec<u32>),
}

impl From<u8> for FieldValue {
    fn from(v: u8) -> FieldValue {
        FieldValue::Number(u64::from(v))
    }
}

impl From<u16> for FieldValue {
    fn from(v: u16) -> FieldValue {
        FieldValue::Number(u64::from(v))
    }
}

impl From<u32> for FieldValue {
    fn from(v: u32) -> FieldValue {
        FieldValue::Number(u64::from(v))
    }
}

impl From<u64> for FieldValue {
    fn from(v: u64) -> FieldValue {
        FieldValue::Number(v)
    }
}

impl<const N: usize> From<[u8; N]> for FieldValue {
    fn from(v: [u8; N]) -> FieldValue {
        FieldValue::Bytes(v.to_vec())
    }
}

impl<const N: usize> From<[u32; N]> for FieldValue {
    fn from(v: [u32; N]) -> FieldValue {
        FieldValue::Words(v.to_vec())
    }
}

/// How a field lies on disk. Each codec has `get`, `put` and the bytes `LEN` it covers at its first offset.
pub(crate) mod codec {
    macro_rules! plain {
        ($($name:ident: $t:ty, $len:literal, $get:path, $put:path;)*) => {$(
            pub(crate) mod $name {
                pub(crate) const fn len(_: $t) -> u32 { $len }
                pub(crate) fn get(b: &[u8], at: usize) -> $t { $get(b, at) }
                pub(crate) fn put(b: &mut [u8], v: $t, at: usize) { $put(b, at, v); }
            }
        )*};
    }
    use crate::base::bytes;
    plain! {
        byte: u8, 1, crate::base::bytes::u8_at, crate::base::bytes::put_u8;
        le16: u16, 2, crate::base::bytes::le16, crate::base::bytes::put_le16;
        le32: u32, 4, crate::base::bytes::le32, crate::base::bytes::put_le32;
        le64: u64, 8, crate::base::bytes::le64, crate::base::bytes::put_le64;
        be32: u32, 4, crate::base::bytes::be32, crate::base::bytes::put_be32;
    }

    /// Low 32 bits at one place, high 32 bits at another.
    pub(crate) mod lo32hi32 {
        use super::bytes::{le32, put_le32};
        use crate::format::cast;
        pub(crate) const fn len(_: u64) -> u32 {
            4
        }
        pub(crate) fn get(b: &[u8], lo: usize, hi: usize) -> u64 {
            cast::join32(le32(b, hi), le32(b, lo))
        }
        pub(crate) fn put(b: &mut [u8], v: u64, lo: usize, hi: usize) {
            put_le32(b, lo, cast::lo32(v));
            put_le32(b, hi, cast::hi32(v));
        }
    }

    /// Low 32 bits at one place, high 16 bits at another.
    pub(crate) mod lo32hi16 {
        use super::bytes::{le16, le32, put_le16, put_le32};
        use crate::format::cast;
        pub(crate) const fn len(_: u64) -> u32 {
            4
        }
        pub(crate) fn get(b: &[u8], lo: usize, hi: usize) -> u64 {
            cast::join32(u32::from(le16(b, hi)), le32(b, lo))
        }
        pub(crate) fn put(b: &mut [u8], v: u64, lo: usize, hi: usize) {
            put_le32(b, lo, cast::lo32(v));
            put_le16(b, hi, cast::lo16(cast::hi32(v)));
        }
    }

    /// Low 16 bits at one place, high 16 bits at another.
    pub(crate) mod lo16hi16 {
        use super::bytes::{le16, put_le16};
        use crate::format::cast;
        pub(crate) const fn len(_: u32) -> u32 {
            2
        }
        pub(crate) fn get(b: &[u8], lo: usize, hi: usize) -> u32 {
            cast::join16(le16(b, hi), le16(b, lo))
        }
        pub(crate) fn put(b: &mut [u8], v: u32, lo: usize, hi: usize) {
            put_le16(b, lo, cast::lo16(v));
            put_le16(b, hi, cast::hi16(v));
        }
    }

    /// Plain bytes.
    pub(crate) mod bytes_at {
        use super::bytes::{array, put_slice};
        use crate::format::cast;
        pub(crate) const fn len<const N: usize>(_: [u8; N]) -> u32 {
            cast::len32(N)
        }
        pub(crate) fn get<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
            array(b, at)
        }
        pub(crate) fn put<const N: usize>(b: &mut [u8], v: [u8; N], at: usize) {
            put_slice(b, at, &v);
        }
    }

    /// An array of 32-bit words.
    pub(crate) mod le32s {
        use super::bytes::{le32, put_le32};
        use crate::format::cast;
        pub(crate) const fn len<const N: usize>(_: [u32; N]) -> u32 {
            cast::len32(N).saturating_mul(4)
        }
        pub(crate) fn get<const N: usize>(b: &[u8], at: usize) -> [u32; N] {
            std::array::from_fn(|i| le32(b, at.saturating_add(i.saturating_mul(4))))
        }
        pub(crate) fn put<const N: usize>(b: &mut [u8], v: [u32; N], at: usize) {
            for (i, w) in v.into_iter().enumerate() {
                put_le32(b, at.saturating_add(i.saturating_mul(4)), w);
            }
        }
    }
}

/// Declares an on-disk structure: `name: type = codec(offset, ..), "meaning";`.
macro_rules! on_disk {
    ($(#[$m:meta])* pub struct $name:ident {
        $($f:ident: $t:ty = $codec:ident($at:literal $(, $more:literal)*), $doc:literal;)*
    }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $doc] pub $f: $t,)*
        }

        impl $name {
            /// The structure as all-zero bytes decode.
            pub fn zeroed() -> $name {
                $name::read_fields(&[])
            }

            fn read_fields(b: &[u8]) -> $name {
                $name { $($f: $crate::format::layout::codec::$codec::get(b, $at $(, $more)*),)* }
            }

            fn write_fields(&self, b: &mut [u8]) {
                $($crate::format::layout::codec::$codec::put(b, self.$f, $at $(, $more)*);)*
            }

            /// All fields in order of declaration, for listings.
            pub fn fields(&self) -> Vec<$crate::format::Field> {
                vec![$($crate::format::Field {
                    name: stringify!($f),
                    offset: $at,
                    len: $crate::format::layout::codec::$codec::len(self.$f),
                    doc: $doc,
                    value: self.$f.into(),
                },)*]
            }
        }
    };
}

pub(crate) use on_disk;
