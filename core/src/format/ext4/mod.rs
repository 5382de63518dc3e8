//! ext4 structures. All little-endian; sources are `fs/ext4/ext4.h` and `Documentation/filesystems/ext4`.

pub mod acl;
pub mod checksum;
pub mod dirent;
pub mod dirhash;
pub mod dx;
pub mod extent;
pub mod features;
mod geometry;
pub mod group_desc;
pub mod inline_data;
pub mod inode;
pub mod orphan_file;
pub mod superblock;
pub mod xattr;

pub use checksum::CsumCtx;
pub use dirent::{Dirent, Dirents};
pub use extent::{Extent, ExtentHeader, ExtentIdx, ExtentNode};
pub use features::{Feature, FeatureSet};
pub use group_desc::GroupDesc;
pub use inode::{RawInode, Timestamp};
pub use superblock::SuperBlock;
