//! Linux error numbers.

use std::fmt;

macro_rules! errnos {
    ($($name:ident = $n:literal,)*) => {
        /// What a system call returns on failure. Names and numbers of Linux (`asm-generic/errno*.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(clippy::upper_case_acronyms, reason = "kernel spelling")]
        #[allow(missing_docs, reason = "the names are their documentation")]
        pub enum Errno { $($name = $n,)* }

        impl Errno {
            /// The symbolic name, for example `ENOENT`. Number 95 has two; this is the one of recordings, `ENOTSUP`.
            pub fn name(self) -> &'static str {
                if self == Errno::EOPNOTSUPP {
                    return "ENOTSUP";
                }
                match self { $(Errno::$name => stringify!($name),)* }
            }
        }
    };
}

errnos! {
    EPERM = 1, ENOENT = 2, EINTR = 4, EIO = 5, ENXIO = 6, E2BIG = 7, EBADF = 9, EAGAIN = 11, ENOMEM = 12,
    EACCES = 13, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21,
    EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOTTY = 25, ETXTBSY = 26, EFBIG = 27, ENOSPC = 28,
    ESPIPE = 29, EROFS = 30, EMLINK = 31, ERANGE = 34, ENAMETOOLONG = 36, ENOTEMPTY = 39,
    ELOOP = 40, ENODATA = 61, EOVERFLOW = 75, EBADMSG = 74, EUCLEAN = 117, EOPNOTSUPP = 95,
    EDQUOT = 122,
}

impl Errno {
    /// The number.
    pub fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
