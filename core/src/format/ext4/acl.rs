//! POSIX ACLs: `ext4_acl_header`, `ext4_acl_entry` of `fs/ext4/acl.h` on disk, and the form of the
//! `system.posix_acl_*` attributes (`include/uapi/linux/posix_acl_xattr.h`). Both little-endian.

use crate::base::bytes;

/// Version word on disk.
pub const EXT4_ACL_VERSION: u32 = 1;
/// Version word of the attribute.
pub const POSIX_ACL_XATTR_VERSION: u32 = 2;
/// Tag: a named user.
pub const ACL_USER: u16 = 0x02;
/// Tag: a named group.
pub const ACL_GROUP: u16 = 0x08;

/// The value that `getxattr` shows for the value stored on disk; `None` if it is malformed.
pub fn disk_to_xattr(disk: &[u8]) -> Option<Vec<u8>> {
    if bytes::le32(disk, 0) != EXT4_ACL_VERSION || disk.len() < 4 {
        return None;
    }
    let mut out = POSIX_ACL_XATTR_VERSION.to_le_bytes().to_vec();
    let mut rest = disk.get(4..)?;
    while !rest.is_empty() {
        let tag = bytes::le16(rest, 0);
        let named = tag == ACL_USER || tag == ACL_GROUP;
        let len = if named { 8 } else { 4 };
        out.extend_from_slice(rest.get(..4)?);
        let id = if named { bytes::le32(rest, 4) } else { !0 };
        out.extend_from_slice(&id.to_le_bytes());
        rest = rest.get(len..)?;
    }
    Some(out)
}

/// The value to store on disk for what `setxattr` was given; `None` if it is malformed.
pub fn xattr_to_disk(value: &[u8]) -> Option<Vec<u8>> {
    if bytes::le32(value, 0) != POSIX_ACL_XATTR_VERSION || value.len() % 8 != 4 {
        return None;
    }
    let mut out = EXT4_ACL_VERSION.to_le_bytes().to_vec();
    for e in value.get(4..)?.chunks_exact(8) {
        let tag = bytes::le16(e, 0);
        let len = if tag == ACL_USER || tag == ACL_GROUP {
            8
        } else {
            4
        };
        out.extend_from_slice(e.get(..len)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let mut x = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in [
            (1u16, 7u16, !0u32),
            (2, 5, 1000),
            (4, 5, !0),
            (0x10, 7, !0),
            (0x20, 1, !0),
        ] {
            x.extend_from_slice(&tag.to_le_bytes());
            x.extend_from_slice(&perm.to_le_bytes());
            x.extend_from_slice(&id.to_le_bytes());
        }
        let d = xattr_to_disk(&x).unwrap();
        assert_eq!(d.len(), 4 + 4 * 4 + 8);
        assert_eq!(disk_to_xattr(&d).unwrap(), x);
        assert_eq!(disk_to_xattr(&d[..d.len() - 1]), None);
    }
}
