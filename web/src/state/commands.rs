//! The setup as the two commands that Linux would be given, both ways: typing there changes the form.

use crate::link::protocol::Experiment;

/// Where the commands find the disk and put the tree.
const DEVICE: &str = "/dev/vda";
const PLACE: &str = "/mnt";

/// The commands of an experiment; over a given image there is no mkfs.
pub fn of(e: &Experiment, given_image: bool) -> String {
    let words = |parts: &[&str]| {
        let words: Vec<&str> = parts.iter().flat_map(|p| p.split_whitespace()).collect();
        words.join(" ")
    };
    let mount = match e.mount.trim() {
        "" => words(&["mount", DEVICE, PLACE]),
        options => words(&["mount -o", options, DEVICE, PLACE]),
    };
    if given_image {
        mount
    } else {
        format!("{} &&\n{mount}", words(&["mkfs.ext4", &e.mkfs, DEVICE]))
    }
}

/// What typed commands say: the options of mkfs and of mount; `None` where there is no such command.
pub fn read(text: &str) -> (Option<String>, Option<String>) {
    let (mut mkfs, mut mount) = (None, None);
    for command in text
        .replace("&&", "\n")
        .replace("\\\n", " ")
        .split(['\n', ';'])
    {
        let mut words = command
            .split_whitespace()
            .skip_while(|w| *w == "sudo" || *w == "&&");
        let name = words.next().unwrap_or_default();
        match name.rsplit('/').next().unwrap_or(name) {
            "mkfs.ext4" | "mke2fs" | "mkfs" => mkfs = Some(mkfs_options(words)),
            "mount" => mount = Some(mount_options(words)),
            _ => {}
        }
    }
    (mkfs, mount)
}

/// All but the type and the device.
fn mkfs_options<'a>(mut words: impl Iterator<Item = &'a str>) -> String {
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-t" => {
                words.next();
            }
            _ if word.starts_with('/') => {}
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

/// What stands after each `-o`.
fn mount_options<'a>(mut words: impl Iterator<Item = &'a str>) -> String {
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "-o" => kept.extend(words.next().filter(|w| !w.starts_with('/'))),
            "-t" => {
                words.next();
            }
            "-r" => kept.push("ro"),
            _ => kept.extend(word.strip_prefix("-o").filter(|w| !w.is_empty())),
        }
    }
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(mkfs: &str, mount: &str) -> Experiment {
        Experiment {
            mkfs: mkfs.into(),
            mount: mount.into(),
            ..Experiment::default()
        }
    }

    #[test]
    fn written_and_read_back() {
        for (mkfs, mount) in [
            ("", ""),
            (
                "-b 1024 -O ^has_journal -J size=8",
                "data=journal,commit=30",
            ),
        ] {
            let text = of(&experiment(mkfs, mount), false);
            assert_eq!(
                read(&text),
                (Some(mkfs.into()), Some(mount.into())),
                "{text}"
            );
        }
        let text = of(&experiment("-b 1024", "ro"), true);
        assert_eq!(read(&text), (None, Some("ro".into())), "{text}");
    }

    #[test]
    fn as_people_type_them() {
        let text = "sudo /sbin/mke2fs -t ext4 -I 256 /dev/sdb1; mount -t ext4 -o noatime -o data=writeback -r /dev/sdb1 /x";
        let options = (
            Some("-I 256".into()),
            Some("noatime,data=writeback,ro".into()),
        );
        assert_eq!(read(text), options);
        assert_eq!(
            read("mkfs.ext4 \\\n -b 1024 /dev/vda"),
            (Some("-b 1024".into()), None)
        );
        assert_eq!(read("mount -o"), (None, Some(String::new())));
        assert_eq!(read("# nothing"), (None, None));
    }
}
