//! Messages as bytes. Both ends are built from the same sources, so that fields need no names; files travel beside
//! the message as they are, since an image of a disk has no room for a second copy.

use std::mem::take;

use serde::de::DeserializeOwned;
use serde::Serialize;

use super::protocol::{Answer, Ask, Question, Reply};

/// A message and the files that belong to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The message.
    pub bytes: Vec<u8>,
    /// Contents of its files, in order.
    pub files: Vec<Vec<u8>>,
}

/// A message with files in it.
pub trait Message: Serialize + DeserializeOwned {
    /// Where their contents lie.
    fn files(&mut self) -> Vec<&mut Vec<u8>>;

    /// The message to be sent; the error says why it cannot be.
    fn pack(mut self) -> Result<Packed, String> {
        let files = self.files().into_iter().map(take).collect();
        let bytes = bincode::serialize(&self).map_err(|e| e.to_string())?;
        Ok(Packed { bytes, files })
    }

    /// The message that came; the error says why it is none.
    fn unpack(packed: Packed) -> Result<Self, String> {
        let mut message: Self = bincode::deserialize(&packed.bytes).map_err(|e| e.to_string())?;
        for (place, file) in message.files().into_iter().zip(packed.files) {
            *place = file;
        }
        Ok(message)
    }
}

impl Message for Question {
    fn files(&mut self) -> Vec<&mut Vec<u8>> {
        match &mut self.ask {
            Ask::LoadImage { image, .. } => vec![image],
            _ => Vec::new(),
        }
    }
}

impl Message for Reply {
    fn files(&mut self) -> Vec<&mut Vec<u8>> {
        match &mut self.answer {
            Answer::Export(export) => export.files.iter_mut().map(|f| &mut f.bytes).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::protocol::{Experiment, Export, ExportFile, Frame, Selection};

    #[test]
    fn what_is_packed_is_unpacked() {
        let question = Question {
            id: 7,
            ask: Ask::LoadImage {
                experiment: Experiment {
                    mount: "data=journal".into(),
                    ..Experiment::default()
                },
                image: vec![1, 2, 3],
            },
        };
        let packed = question.clone().pack().expect("packs");
        assert_eq!(packed.files, vec![vec![1, 2, 3]]);
        assert_eq!(Question::unpack(packed), Ok(question));
        let file = |name: &str, byte: u8| ExportFile {
            name: name.into(),
            bytes: vec![byte; 3],
        };
        let export = Export {
            files: vec![file("a", 1), file("b", 2)],
            ..Export::default()
        };
        let frame = Frame {
            at_ns: 5,
            tree: Some(Vec::new()),
            ..Frame::default()
        };
        for answer in [
            Answer::Export(Box::new(export)),
            Answer::Frame(Box::new(frame)),
            Answer::Stepped(None),
        ] {
            let reply = Reply { id: 1, answer };
            let packed = reply.clone().pack().expect("packs");
            assert_eq!(Reply::unpack(packed), Ok(reply));
        }
        let inspect = Selection::Path("/a".into());
        assert!(bincode::serialize(&inspect).is_ok());
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let reply = Reply {
            id: 1,
            answer: Answer::Refused("no".into()),
        };
        let mut packed = reply.pack().expect("packs");
        packed.bytes.pop();
        assert!(Reply::unpack(packed).is_err());
    }
}
