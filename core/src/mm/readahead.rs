//! Readahead windows of one open file (kernel `mm/readahead.c`): which pages to read with a page that is missed.

/// State of an open file (`struct file_ra_state`). Unit: pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRa {
    start: u64,
    size: u64,
    async_size: u64,
    /// Largest window (`ra_pages`, from `read_ahead_kb`).
    pub ra_pages: u64,
    prev: u64,
}

/// Pages to read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First page.
    pub start: u64,
    /// Number of pages.
    pub count: u64,
    /// Page that gets the readahead marker, if any.
    pub marker: Option<u64>,
}

impl Default for FileRa {
    fn default() -> FileRa {
        FileRa::new(32)
    }
}

impl FileRa {
    /// A file just opened on a device with a largest window of `ra_pages` (32 = 128 KiB is the default).
    pub fn new(ra_pages: u64) -> FileRa {
        FileRa {
            start: 0,
            size: 0,
            async_size: 0,
            ra_pages,
            prev: u64::MAX,
        }
    }

    /// Remembers the last page read.
    pub fn note_read(&mut self, index: u64) {
        self.prev = index;
    }

    /// Page `index` is missed while `req` pages from it are wanted (`page_cache_sync_ra`). The window may reach
    /// past the end of the file; the caller cuts it.
    pub fn on_miss(&mut self, index: u64, req: u64, cached_before: u64) -> Window {
        let max = self.ra_pages.max(1);
        if self.ra_pages == 0 {
            return self.plain(index, req.min(32));
        }
        let sequential = index == 0
            || index == self.prev.wrapping_add(1)
            || index == self.prev
            || index == self.start + self.size && self.size > 0;
        if sequential || req > max {
            self.start = index;
            self.size = init_size(req, max);
            self.async_size = if self.size > req {
                self.size - req
            } else {
                self.size
            };
            return self.submit();
        }
        // Pages just before are cached: an interleaved sequential stream.
        if cached_before > req {
            self.start = index;
            self.size = (cached_before.min(index) + req).min(max);
            self.async_size = 1;
            return self.submit();
        }
        self.plain(index, req)
    }

    /// The page with the marker is used: the next window (`page_cache_async_ra`).
    pub fn on_marker(&mut self, index: u64, req: u64) -> Window {
        let max = self.ra_pages.max(1);
        let expected = self.start + self.size - self.async_size.min(self.size);
        if index == expected {
            self.start += self.size;
            self.size = next_size(self.size, max);
        } else {
            self.start = index + 1;
            self.size = next_size((self.start - index) + req, max);
        }
        self.async_size = self.size;
        self.submit()
    }

    fn submit(&mut self) -> Window {
        let marker = (self.async_size > 0).then(|| self.start + self.size - self.async_size);
        Window {
            start: self.start,
            count: self.size,
            marker,
        }
    }

    fn plain(&self, start: u64, count: u64) -> Window {
        Window {
            start,
            count,
            marker: None,
        }
    }
}

/// `get_init_ra_size`.
fn init_size(size: u64, max: u64) -> u64 {
    let new = size.next_power_of_two();
    if new <= max / 32 {
        new * 4
    } else if new <= max / 4 {
        new * 2
    } else {
        max
    }
}

/// `get_next_ra_size`.
fn next_size(cur: u64, max: u64) -> u64 {
    if cur < max / 16 {
        4 * cur
    } else if cur <= max / 2 {
        2 * cur
    } else {
        max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_gets_growing_windows() {
        let mut ra = FileRa::new(32);
        let w = ra.on_miss(0, 1, 0);
        assert_eq!((w.start, w.count, w.marker), (0, 4, Some(1)));
        let w = ra.on_marker(1, 1);
        assert_eq!((w.start, w.count, w.marker), (4, 8, Some(4)));
        let w = ra.on_marker(4, 1);
        assert_eq!((w.start, w.count), (12, 16));
        let w = ra.on_marker(12, 1);
        assert_eq!((w.start, w.count), (28, 32));
        let w = ra.on_marker(28, 1);
        assert_eq!((w.start, w.count), (60, 32));
    }

    #[test]
    fn a_random_reader_gets_what_it_asks() {
        let mut ra = FileRa::new(32);
        ra.note_read(5);
        let w = ra.on_miss(1000, 1, 0);
        assert_eq!((w.start, w.count, w.marker), (1000, 1, None));
    }
}
