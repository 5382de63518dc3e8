//! Extended attributes by name (kernel `fs/xattr.c`; `fs/ext4/xattr_user.c`, `xattr_trusted.c`, `xattr_security.c`).

use super::{fail, Op, SysResult, Vfs, XattrMode};
use crate::base::{Errno, Ino};
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::xattr_names::{
    self, EXT4_XATTR_INDEX_POSIX_ACL_ACCESS, EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT,
    EXT4_XATTR_INDEX_SECURITY, EXT4_XATTR_INDEX_TRUSTED, EXT4_XATTR_INDEX_USER,
};
use crate::fs::ext4::{flag, Acl, AclType, Inode, XattrFlag, XATTR_SIZE_MAX};
use crate::trace::Call;
use std::rc::Rc;

/// What a name stands for.
enum Name<'a> {
    Acl(AclType),
    Plain(u8, &'a [u8]),
}

fn parse(name: &[u8]) -> Result<Name<'_>, Errno> {
    match name {
        b"system.posix_acl_access" => return Ok(Name::Acl(AclType::Access)),
        b"system.posix_acl_default" => return Ok(Name::Acl(AclType::Default)),
        _ => {}
    }
    for (prefix, index) in [
        (&b"user."[..], EXT4_XATTR_INDEX_USER),
        (b"trusted.", EXT4_XATTR_INDEX_TRUSTED),
        (b"security.", EXT4_XATTR_INDEX_SECURITY),
    ] {
        if let Some(rest) = name.strip_prefix(prefix) {
            if rest.is_empty() {
                return Err(Errno::EINVAL);
            }
            return Ok(Name::Plain(index, rest));
        }
    }
    Err(Errno::EOPNOTSUPP)
}

fn check_name(name: &[u8]) -> FsResult<()> {
    if name.is_empty() || name.len() > 255 {
        return fail(Errno::ERANGE);
    }
    Ok(())
}

impl Vfs {
    /// `xattr_permission` for root.
    fn xattr_permission(&self, inode: &Inode, name: &[u8], write: bool) -> FsResult<()> {
        if write && (inode.has_flag(flag::IMMUTABLE) || inode.has_flag(flag::APPEND)) {
            return fail(Errno::EPERM);
        }
        if name.starts_with(b"user.") && !inode.is_reg() && !inode.is_dir() {
            return fail(if write { Errno::EPERM } else { Errno::ENODATA });
        }
        Ok(())
    }

    /// `lsetxattr(2)`.
    pub async fn setxattr(
        &self,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> SysResult<()> {
        let op = self.begin(Call::Setxattr, Ino(0), 0).await;
        let done = self.do_setxattr(&op, path, name, value, how).await;
        self.end(&op, done)
    }

    async fn do_setxattr(
        &self,
        op: &Op,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> FsResult<()> {
        check_name(name)?;
        if value.len() > XATTR_SIZE_MAX {
            return fail(Errno::E2BIG);
        }
        let inode = self.lookup_path(path, false).await?;
        op.ino.set(inode.ino);
        self.want_write()?;
        let flag = match how {
            XattrMode::Any => XattrFlag::Any,
            XattrMode::Create => XattrFlag::Create,
            XattrMode::Replace => XattrFlag::Replace,
        };
        self.change_xattr(inode, name, Some(value), flag).await
    }

    /// `lremovexattr(2)`.
    pub async fn removexattr(&self, path: &[u8], name: &[u8]) -> SysResult<()> {
        let op = self.begin(Call::Removexattr, Ino(0), 0).await;
        let done = self.do_removexattr(&op, path, name).await;
        self.end(&op, done)
    }

    async fn do_removexattr(&self, op: &Op, path: &[u8], name: &[u8]) -> FsResult<()> {
        check_name(name)?;
        let inode = self.lookup_path(path, false).await?;
        op.ino.set(inode.ino);
        self.want_write()?;
        self.change_xattr(inode, name, None, XattrFlag::Replace)
            .await
    }

    async fn change_xattr(
        &self,
        inode: Rc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        flag: XattrFlag,
    ) -> FsResult<()> {
        self.fs.igrab(&inode);
        let lock = inode.rwsem.write().await;
        let done = self.change_locked(&inode, name, value, flag).await;
        drop(lock);
        let put = self.fs.iput(inode).await;
        done?;
        put
    }

    async fn change_locked(
        &self,
        inode: &Rc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        flag: XattrFlag,
    ) -> FsResult<()> {
        self.xattr_permission(inode, name, true)?;
        match parse(name).map_err(FsError::Errno)? {
            Name::Acl(ty) => {
                let acl = Acl::from_xattr(value.unwrap_or(&[])).map_err(FsError::Errno)?;
                self.set_posix_acl(inode, ty, acl).await
            }
            Name::Plain(index, rest) => {
                if index == EXT4_XATTR_INDEX_USER && !self.fs.user_xattr() {
                    return fail(Errno::EOPNOTSUPP);
                }
                self.fs.xattr_set(inode, index, rest, value, flag).await
            }
        }
    }

    async fn set_posix_acl(
        &self,
        inode: &Rc<Inode>,
        ty: AclType,
        acl: Option<Acl>,
    ) -> FsResult<()> {
        if !self.fs.posix_acl() || inode.is_lnk() {
            return fail(Errno::EOPNOTSUPP);
        }
        if ty == AclType::Default && !inode.is_dir() {
            return match acl {
                Some(_) => fail(Errno::EACCES),
                None => Ok(()),
            };
        }
        if acl.as_ref().is_some_and(|a| !a.valid()) {
            return fail(Errno::EINVAL);
        }
        self.fs.set_acl(inode, ty, acl).await
    }

    /// `lgetxattr(2)`: the whole value.
    pub async fn getxattr(&self, path: &[u8], name: &[u8]) -> SysResult<Vec<u8>> {
        let op = self.begin(Call::Getxattr, Ino(0), 0).await;
        let done = self.do_getxattr(&op, path, name).await;
        self.end(&op, done)
    }

    async fn do_getxattr(&self, op: &Op, path: &[u8], name: &[u8]) -> FsResult<Vec<u8>> {
        check_name(name)?;
        let inode = self.lookup_path(path, false).await?;
        op.ino.set(inode.ino);
        self.fs.igrab(&inode);
        let done = self.get_value(&inode, name).await;
        let put = self.fs.iput(inode).await;
        let value = done?;
        put?;
        Ok(value)
    }

    async fn get_value(&self, inode: &Rc<Inode>, name: &[u8]) -> FsResult<Vec<u8>> {
        self.xattr_permission(inode, name, false)?;
        match parse(name).map_err(FsError::Errno)? {
            Name::Acl(ty) => {
                if !self.fs.posix_acl() || inode.is_lnk() {
                    return fail(Errno::EOPNOTSUPP);
                }
                let acl = self.fs.get_acl(inode, ty).await?;
                Ok(acl.ok_or(FsError::Errno(Errno::ENODATA))?.to_xattr())
            }
            Name::Plain(index, rest) => {
                if index == EXT4_XATTR_INDEX_USER && !self.fs.user_xattr() {
                    return fail(Errno::EOPNOTSUPP);
                }
                self.fs.xattr_get(inode, index, rest).await
            }
        }
    }

    /// `llistxattr(2)`: full names.
    pub async fn listxattr(&self, path: &[u8]) -> SysResult<Vec<Vec<u8>>> {
        let op = self.begin(Call::Listxattr, Ino(0), 0).await;
        let done = self.do_listxattr(&op, path).await;
        self.end(&op, done)
    }

    async fn do_listxattr(&self, op: &Op, path: &[u8]) -> FsResult<Vec<Vec<u8>>> {
        let inode = self.lookup_path(path, false).await?;
        op.ino.set(inode.ino);
        self.fs.igrab(&inode);
        let list = self.fs.xattr_list(&inode).await;
        self.fs.iput(inode).await?;
        let shown = |index: u8| match index {
            EXT4_XATTR_INDEX_USER => self.fs.user_xattr(),
            EXT4_XATTR_INDEX_POSIX_ACL_ACCESS | EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT => {
                self.fs.posix_acl()
            }
            EXT4_XATTR_INDEX_TRUSTED | EXT4_XATTR_INDEX_SECURITY => true,
            _ => false,
        };
        let mut names = Vec::new();
        for (index, rest) in list? {
            if let Some(prefix) = xattr_names::prefix(index).filter(|_| shown(index)) {
                let mut name = prefix.as_bytes().to_vec();
                name.extend_from_slice(&rest);
                names.push(name);
            }
        }
        Ok(names)
    }
}
