//! POSIX ACLs (kernel `fs/ext4/acl.c`, `fs/posix_acl.c`): stored compactly under their own name indexes, inherited
//! from the directory's default ACL, kept in step with the mode.

use super::xattr::XattrFlag;
use super::{mode, Ext4, Inode};
use crate::base::bytes::{le16, le32};
use crate::base::Errno;
use crate::format::ext4::acl::{disk_to_xattr, xattr_to_disk, ACL_GROUP, ACL_USER};
use crate::format::ext4::xattr::{
    EXT4_XATTR_INDEX_POSIX_ACL_ACCESS, EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT,
};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};

const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Which of the two ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclType {
    /// Who may do what.
    Access,
    /// What new entries of a directory get.
    Default,
}

impl AclType {
    fn index(self) -> u8 {
        match self {
            AclType::Access => EXT4_XATTR_INDEX_POSIX_ACL_ACCESS,
            AclType::Default => EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// From the value of the attribute. `Ok(None)` for an empty list; the kernel's errors otherwise.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, Errno> {
        if value.is_empty() {
            return Ok(None);
        }
        if value.len() < 4 {
            return Err(Errno::EINVAL);
        }
        if le32(value, 0) != 2 {
            return Err(Errno::EOPNOTSUPP);
        }
        if value.len() % 8 != 4 {
            return Err(Errno::EINVAL);
        }
        let mut acl = Vec::new();
        for e in value[4..].chunks_exact(8) {
            let tag = le16(e, 0);
            if !matches!(
                tag,
                USER_OBJ | ACL_USER | GROUP_OBJ | ACL_GROUP | MASK | OTHER
            ) {
                return Err(Errno::EINVAL);
            }
            acl.push(Entry {
                tag,
                perm: le16(e, 2),
                id: le32(e, 4),
            });
        }
        Ok(Some(Acl(acl)).filter(|a| !a.0.is_empty()))
    }

    /// As the value of the attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for e in &self.0 {
            let named = e.tag == ACL_USER || e.tag == ACL_GROUP;
            let id = if named { e.id } else { u32::MAX };
            out.extend_from_slice(&e.tag.to_le_bytes());
            out.extend_from_slice(&e.perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    /// The kernel's `posix_acl_valid`: order of tags, a mask where named entries are, three permission bits.
    pub fn valid(&self) -> bool {
        let mut state = USER_OBJ;
        let mut needs_mask = false;
        for e in &self.0 {
            if e.perm & !7 != 0 {
                return false;
            }
            let next = match (e.tag, state) {
                (USER_OBJ, USER_OBJ) => ACL_USER,
                (ACL_USER, ACL_USER) | (ACL_GROUP, ACL_GROUP) => {
                    needs_mask = true;
                    state
                }
                (GROUP_OBJ, ACL_USER) => ACL_GROUP,
                (MASK, ACL_GROUP) => OTHER,
                (OTHER, OTHER) => 0,
                (OTHER, ACL_GROUP) if !needs_mask => 0,
                _ => return false,
            };
            state = next;
        }
        state == 0
    }

    /// Permission bits that say the same, or `None` if the list says more (kernel `posix_acl_equiv_mode`). The
    /// first value are the bits that go into the mode in any case.
    pub fn equiv_mode(&self) -> (u32, bool) {
        let mut bits = 0u32;
        let mut equiv = true;
        for e in &self.0 {
            let perm = u32::from(e.perm & 7);
            match e.tag {
                USER_OBJ => bits |= perm << 6,
                GROUP_OBJ => bits |= perm << 3,
                OTHER => bits |= perm,
                MASK => {
                    bits = bits & !0o070 | perm << 3;
                    equiv = false;
                }
                _ => equiv = false,
            }
        }
        (bits, equiv)
    }

    fn group_class(&mut self) -> Option<&mut Entry> {
        let tag = if self.0.iter().any(|e| e.tag == MASK) {
            MASK
        } else {
            GROUP_OBJ
        };
        self.0.iter_mut().find(|e| e.tag == tag)
    }

    /// Cuts a default ACL and the mode of a new file to what both allow (kernel `posix_acl_create_masq`). True if
    /// the list says more than the mode.
    fn create_masq(&mut self, i_mode: &mut u32) -> Option<bool> {
        let mut bits = *i_mode & 0o777;
        let mut more = false;
        for e in &mut self.0 {
            match e.tag {
                USER_OBJ => {
                    e.perm &= (bits >> 6) as u16 | !7;
                    bits &= u32::from(e.perm) << 6 | !0o700;
                }
                OTHER => {
                    e.perm &= bits as u16 | !7;
                    bits &= u32::from(e.perm) | !7;
                }
                GROUP_OBJ => {}
                _ => more = true,
            }
        }
        let e = self.group_class()?;
        e.perm &= (bits >> 3) as u16 | !7;
        bits &= u32::from(e.perm) << 3 | !0o070;
        *i_mode = *i_mode & !0o777 | bits;
        Some(more)
    }

    fn chmod_masq(&mut self, i_mode: u32) {
        for e in &mut self.0 {
            match e.tag {
                USER_OBJ => e.perm = (i_mode >> 6 & 7) as u16,
                OTHER => e.perm = (i_mode & 7) as u16,
                _ => {}
            }
        }
        if let Some(e) = self.group_class() {
            e.perm = (i_mode >> 3 & 7) as u16;
        }
    }
}

impl Ext4 {
    /// ACLs are in use (mount option `acl`, the default).
    pub fn posix_acl(&self) -> bool {
        self.opts.borrow().acl.unwrap_or(true)
    }

    /// The ACL of `inode`, if it has one.
    pub async fn get_acl(&self, inode: &Inode, ty: AclType) -> FsResult<Option<Acl>> {
        let disk = match self.xattr_get(inode, ty.index(), b"").await {
            Ok(v) => v,
            Err(FsError::Errno(Errno::ENODATA)) => return Ok(None),
            Err(e) => return Err(e),
        };
        let value = disk_to_xattr(&disk).ok_or(Corrupt::new(CorruptKind::XattrName {}, 0))?;
        Acl::from_xattr(&value).map_err(FsError::Errno)
    }

    async fn set_acl_handle(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ty: AclType,
        acl: Option<&Acl>,
        flag: XattrFlag,
    ) -> FsResult<()> {
        if ty == AclType::Default && !inode.is_dir() {
            return match acl {
                Some(_) => Err(FsError::Errno(Errno::EACCES)),
                None => Ok(()),
            };
        }
        let disk = acl.and_then(|a| xattr_to_disk(&a.to_xattr()));
        self.xattr_set_handle(h, inode, ty.index(), b"", disk.as_deref(), flag)
            .await
    }

    /// Sets or removes an ACL; the mode follows an access ACL (kernel `ext4_set_acl`).
    pub async fn set_acl(&self, inode: &Inode, ty: AclType, acl: Option<Acl>) -> FsResult<()> {
        let mut acl = acl;
        let mut retries = 0;
        loop {
            let credits = self.data_trans_blocks();
            let mut h = self.journal_start(HandleType::Xattr, credits).await?;
            let done = self.set_acl_locked(&mut h, inode, ty, &mut acl).await;
            match self.end_handle(h, done).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    async fn set_acl_locked(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ty: AclType,
        acl: &mut Option<Acl>,
    ) -> FsResult<()> {
        let mut new_mode = None;
        if let (AclType::Access, Some(a)) = (ty, acl.as_ref()) {
            let (bits, equiv) = a.equiv_mode();
            let old = inode.mode();
            new_mode = Some(old & !0o777 | bits).filter(|m| *m != old);
            if equiv {
                *acl = None;
            }
        }
        self.set_acl_handle(h, inode, ty, acl.as_ref(), XattrFlag::Any)
            .await?;
        if let Some(m) = new_mode {
            inode.core.borrow_mut().mode = m;
            self.inode_set_ctime_current(inode);
            self.mark_inode_dirty(h, inode).await?;
        }
        Ok(())
    }

    /// Gives a new inode what the directory's default ACL says (kernel `ext4_init_acl`).
    pub(crate) async fn init_acl(
        &self,
        h: &mut Handle,
        inode: &Inode,
        dir: &Inode,
    ) -> FsResult<()> {
        if inode.is_lnk() || !self.posix_acl() || !dir.has_xattrs() {
            return Ok(());
        }
        let Some(default) = self.get_acl(dir, AclType::Default).await? else {
            return Ok(());
        };
        let mut access = default.clone();
        let mut i_mode = inode.mode();
        let more = access
            .create_masq(&mut i_mode)
            .ok_or(FsError::Errno(Errno::EIO))?;
        inode.core.borrow_mut().mode = i_mode;
        if i_mode & mode::S_IFMT == mode::S_IFDIR {
            self.set_acl_handle(
                h,
                inode,
                AclType::Default,
                Some(&default),
                XattrFlag::Create,
            )
            .await?;
        }
        if more {
            self.set_acl_handle(h, inode, AclType::Access, Some(&access), XattrFlag::Create)
                .await?;
        }
        Ok(())
    }

    /// Lets the access ACL follow a new mode (kernel `posix_acl_chmod`).
    pub(crate) async fn acl_chmod(&self, inode: &Inode, i_mode: u32) -> FsResult<()> {
        if !self.posix_acl() || !inode.has_xattrs() {
            return Ok(());
        }
        let Some(mut acl) = self.get_acl(inode, AclType::Access).await? else {
            return Ok(());
        };
        acl.chmod_masq(i_mode);
        self.set_acl(inode, AclType::Access, Some(acl)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries
            .iter()
            .map(|&(tag, perm, id)| Entry { tag, perm, id })
            .collect())
    }

    #[test]
    fn validity_follows_the_order_of_tags() {
        let minimal = acl(&[(USER_OBJ, 6, 0), (GROUP_OBJ, 4, 0), (OTHER, 4, 0)]);
        assert!(minimal.valid());
        assert_eq!(minimal.equiv_mode(), (0o644, true));
        let named = [
            (USER_OBJ, 6, 0),
            (ACL_USER, 7, 5),
            (GROUP_OBJ, 4, 0),
            (OTHER, 4, 0),
        ];
        assert!(!acl(&named).valid());
        let full = acl(&[
            (USER_OBJ, 6, 0),
            (ACL_USER, 7, 5),
            (GROUP_OBJ, 4, 0),
            (MASK, 5, 0),
            (OTHER, 4, 0),
        ]);
        assert!(full.valid());
        assert_eq!(full.equiv_mode(), (0o654, false));
        let again = Acl::from_xattr(&full.to_xattr()).unwrap().unwrap();
        assert_eq!(again.to_xattr(), full.to_xattr());
        let mut made = full;
        let mut m = 0o100_640;
        assert_eq!(made.create_masq(&mut m), Some(true));
        assert_eq!(m, 0o100_640);
        assert!(!acl(&[(OTHER, 4, 0)]).valid());
    }

    #[test]
    fn malformed_values_get_the_kernels_errors() {
        assert_eq!(Acl::from_xattr(b""), Ok(None));
        assert_eq!(Acl::from_xattr(b"xy"), Err(Errno::EINVAL));
        assert_eq!(Acl::from_xattr(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::from_xattr(&[2, 0, 0, 0]), Ok(None));
        assert_eq!(Acl::from_xattr(&[2, 0, 0, 0, 1]), Err(Errno::EINVAL));
    }
}
