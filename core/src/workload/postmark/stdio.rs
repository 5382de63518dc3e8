//! Which read and write calls reach the kernel when a program uses the C library's buffered files.
//!
//! Behaviour of glibc's `fwrite` and `fread` on a file with 4 KiB blocks, seen in recorded system calls: the buffer is
//! one block; what does not fit goes out in whole blocks and the rest stays.

/// `st_blksize` of the file, the size of the buffer.
const BUFFER: u64 = 4096;

/// Lengths of the program's own calls for `total` bytes given `block` bytes at a time; without a buffer they are the
/// kernel's too.
fn blocks_of(total: u64, block: u64) -> impl Iterator<Item = u64> {
    let mut left = total;
    std::iter::from_fn(move || {
        let n = block.min(left);
        left -= n;
        (n > 0).then_some(n)
    })
}

/// Lengths of the write calls for `total` bytes given `block` bytes at a time.
pub(super) fn write_pieces(total: u64, block: u64, buffered: bool) -> Vec<u64> {
    if !buffered {
        return blocks_of(total, block).collect();
    }
    let mut out = Vec::new();
    let (mut held, mut room) = (0, 0);
    for n in blocks_of(total, block) {
        let copied = n.min(room);
        held += copied;
        room -= copied;
        let rest = n - copied;
        if rest > 0 {
            let direct = rest - rest % BUFFER;
            out.extend([held, direct].into_iter().filter(|n| *n > 0));
            held = rest - direct;
            room = BUFFER - held;
        }
    }
    out.extend(Some(held).filter(|n| *n > 0));
    out
}

/// Lengths asked for by the read calls that fetch a file of `total` bytes `block` bytes at a time.
pub(super) fn read_requests(total: u64, block: u64, buffered: bool) -> Vec<u64> {
    if !buffered {
        return blocks_of(total, block).collect();
    }
    let mut out = Vec::new();
    let (mut held, mut fetched) = (0, 0);
    for n in blocks_of(total, block) {
        let mut want = n;
        while want > held {
            want -= held;
            held = 0;
            let ask = if want < BUFFER {
                BUFFER
            } else {
                want - want % BUFFER
            };
            out.push(ask);
            let got = ask.min(total - fetched);
            fetched += got;
            if want < BUFFER {
                held = got;
            } else {
                want -= got;
            }
        }
        held -= want;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_writes_go_out_in_blocks() {
        assert_eq!(write_pieces(4732, 512, true), [4096, 636]);
        assert_eq!(write_pieces(8192, 512, true), [4096, 4096]);
        assert_eq!(write_pieces(100, 512, true), [100]);
        assert_eq!(write_pieces(10_000, 10_000, true), [8192, 1808]);
        assert_eq!(write_pieces(1200, 512, false), [512, 512, 176]);
    }

    #[test]
    fn buffered_reads_ask_for_blocks_until_they_have_all() {
        assert_eq!(read_requests(2586, 512, true), [4096]);
        assert_eq!(read_requests(8855, 4096, true), [4096, 4096, 4096]);
        assert_eq!(read_requests(8192, 512, true), [4096, 4096]);
        assert_eq!(read_requests(1200, 512, false), [512, 512, 176]);
        assert_eq!(read_requests(20_000, 16_384, true), [16_384, 4096]);
    }
}
