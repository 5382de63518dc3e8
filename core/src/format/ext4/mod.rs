//! ext4 structures. All little-endian; sources are `fs/ext4/ext4.h` and `Documentation/filesystems/ext4`.

pub mod checksum;
pub mod dirent;
pub mod extent;
pub mod features;
mod geometry;
pub mod group_desc;
pub mod inode;
pub mod superblock;

pub use checksum::CsumCtx;
pub use dirent::{Dirent, Dirents};
pub use extent::{Extent, ExtentHeader, ExtentIdx, ExtentNode};
pub use features::{Feature, FeatureSet};
pub use group_desc::GroupDesc;
pub use inode::{RawInode, Timestamp};
pub use superblock::SuperBlock;
