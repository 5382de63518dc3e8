//! A static file server on the loopback interface, as small as the page needs.

use crate::Fault;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const FIRST_PORT: u16 = 8017;
const PORTS_TRIED: u16 = 20;
const CONNECTIONS_MAX: usize = 64;
const HEAD_BYTES_MAX: u64 = 16 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);

/// One folder served under one path.
pub(crate) struct Server {
    listener: TcpListener,
    root: PathBuf,
    base: String,
}

/// What one request gets.
#[derive(PartialEq, Eq, Debug)]
enum Reply {
    File(PathBuf),
    Redirect(String),
    NotFound,
    BadMethod,
}

impl Server {
    /// `port`: this one or none; otherwise the first free of a few.
    pub(crate) fn bind(root: PathBuf, base: &str, port: Option<u16>) -> Result<Server, Fault> {
        let ports = port.map_or(FIRST_PORT..=FIRST_PORT + PORTS_TRIED, |port| port..=port);
        let (first, last) = (*ports.start(), *ports.end());
        let listener = ports
            .into_iter()
            .find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .ok_or(format!(
                "no free port in {first}..={last}; choose one with --port"
            ))?;
        Ok(Server {
            listener,
            root,
            base: base.to_owned(),
        })
    }

    /// The address to open.
    pub(crate) fn url(&self) -> String {
        let port = self
            .listener
            .local_addr()
            .map_or(0, |address| address.port());
        format!("http://127.0.0.1:{port}{}", self.base)
    }

    /// Serves until the process ends.
    pub(crate) fn announce_and_run(self) {
        println!("fsglass is ready at {}   (stop with Ctrl-C)", self.url());
        self.run();
    }

    /// Serves on a thread of its own, for tests of the page. Ends with the process.
    pub(crate) fn run_in_background(self) -> String {
        let url = self.url();
        thread::spawn(move || self.run());
        url
    }

    fn run(self) {
        let open = Arc::new(AtomicUsize::new(0));
        let (root, base) = (Arc::new(self.root), Arc::new(self.base));
        for stream in self.listener.incoming().flatten() {
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (open, root, base) = (open.clone(), root.clone(), base.clone());
            thread::spawn(move || {
                // A visitor who hangs up is no error of the server.
                let _ = answer(&stream, &root, &base);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
}

fn answer(stream: &TcpStream, root: &Path, base: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.take(HEAD_BYTES_MAX));
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = request.split_whitespace();
    let method = words.next().unwrap_or("");
    let target = words.next().unwrap_or("");
    respond(
        stream,
        method == "HEAD",
        resolve(method, target, root, base),
    )
}

/// Finds the file for a request; never outside of the root.
fn resolve(method: &str, target: &str, root: &Path, base: &str) -> Reply {
    if method != "GET" && method != "HEAD" {
        return Reply::BadMethod;
    }
    let (path, query) = target.split_at(target.find(['?', '#']).unwrap_or(target.len()));
    let Some(path) = decode(path) else {
        return Reply::NotFound;
    };
    let Some(inside) = path.strip_prefix(base) else {
        let bare = base.trim_end_matches('/');
        return if path == bare {
            Reply::Redirect(format!("{base}{query}"))
        } else {
            Reply::NotFound
        };
    };
    let relative = Path::new(inside);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return Reply::NotFound;
    }
    let file = root.join(relative);
    if inside.is_empty() || (inside.ends_with('/') && file.is_dir()) {
        return exists(file.join("index.html"));
    }
    if file.is_file() {
        return Reply::File(file);
    }
    // `/e` is `e.html`, as on the usual static hosts.
    let page = root.join(format!("{inside}.html"));
    if page.is_file() {
        return Reply::File(page);
    }
    if file.join("index.html").is_file() {
        return Reply::Redirect(format!("{path}/{query}"));
    }
    Reply::NotFound
}

fn exists(file: PathBuf) -> Reply {
    if file.is_file() {
        Reply::File(file)
    } else {
        Reply::NotFound
    }
}

/// Undoes `%XX`; `None` where the result is no text.
fn decode(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = path.get(at + 1..at + 3)?;
            plain.push(u8::from_str_radix(digits, 16).ok()?);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(plain).ok()
}

fn respond(mut stream: &TcpStream, head_only: bool, reply: Reply) -> std::io::Result<()> {
    let (status, kind, extra, body) = match reply {
        Reply::File(file) => match fs::read(&file) {
            Ok(bytes) => ("200 OK", media_type(&file), String::new(), bytes),
            Err(_) => (
                "404 Not Found",
                TEXT,
                String::new(),
                b"not readable\n".to_vec(),
            ),
        },
        Reply::Redirect(to) => (
            "308 Permanent Redirect",
            TEXT,
            format!("Location: {to}\r\n"),
            Vec::new(),
        ),
        Reply::NotFound => (
            "404 Not Found",
            TEXT,
            String::new(),
            b"not found\n".to_vec(),
        ),
        Reply::BadMethod => (
            "405 Method Not Allowed",
            TEXT,
            "Allow: GET, HEAD\r\n".to_owned(),
            Vec::new(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{extra}\
         Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if !head_only {
        stream.write_all(&body)?;
    }
    stream.flush()
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Streaming compilation of wasm and module scripts both insist on their types.
fn media_type(file: &Path) -> &'static str {
    match file
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or("")
    {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "wasm" => "application/wasm",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "toml" | "txt" | "ops" | "fio" | "md" => TEXT,
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a page, deleted at the end.
    struct Site(PathBuf);

    impl Site {
        fn new(name: &str) -> Site {
            let root = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(root.join("teach")).unwrap();
            for file in [
                "index.html",
                "e.html",
                "a b.js",
                "engine.wasm",
                "teach/index.html",
            ] {
                fs::write(root.join(file), file).unwrap();
            }
            Site(root)
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn paths_find_their_files() {
        let site = Site::new("paths");
        let root = &site.0;
        let get = |target: &str, base: &str| resolve("GET", target, root, base);
        assert_eq!(get("/", "/"), Reply::File(root.join("index.html")));
        assert_eq!(get("/e?x=1#y", "/"), Reply::File(root.join("e.html")));
        assert_eq!(get("/a%20b.js", "/"), Reply::File(root.join("a b.js")));
        assert_eq!(
            get("/teach?a=1", "/"),
            Reply::Redirect("/teach/?a=1".to_owned())
        );
        assert_eq!(
            get("/teach/", "/"),
            Reply::File(root.join("teach/index.html"))
        );
        assert_eq!(
            get("/sub/dir/", "/sub/dir/"),
            Reply::File(root.join("index.html"))
        );
        assert_eq!(
            get("/sub/dir", "/sub/dir/"),
            Reply::Redirect("/sub/dir/".to_owned())
        );
        assert_eq!(get("/elsewhere", "/sub/dir/"), Reply::NotFound);
        assert_eq!(resolve("POST", "/", root, "/"), Reply::BadMethod);
    }

    #[test]
    fn nothing_outside_of_the_root_is_served() {
        let site = Site::new("outside");
        for target in [
            "/../secret",
            "/%2e%2e/secret",
            "//etc/passwd",
            "/%2fetc/passwd",
            "/%zz",
            "/%",
        ] {
            assert_eq!(
                resolve("GET", target, &site.0, "/"),
                Reply::NotFound,
                "{target}"
            );
        }
    }

    #[test]
    fn wasm_has_its_type_over_the_wire() {
        let site = Site::new("wire");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        Server {
            listener,
            root: site.0.clone(),
            base: "/".to_owned(),
        }
        .run_in_background();
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /engine.wasm HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(
            text.contains("Content-Type: application/wasm\r\n"),
            "{text}"
        );
        assert!(text.ends_with("\r\n\r\nengine.wasm"), "{text}");
    }
}
