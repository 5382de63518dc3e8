//! Messages between the page and the worker. The values in them are those of the engine's session, the one door
//! that the page knows; questions and answers are numbered here.

use serde::{Deserialize, Serialize};

pub use fsglass::session::view::*;

/// Two settings to be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareAsk {
    /// One setting.
    pub a: Experiment,
    /// The other.
    pub b: Experiment,
    /// Seeds, each run on both sides.
    pub seeds: u32,
    /// Longest run, virtual ns.
    pub length_ns: u64,
    /// A against A.
    pub noise: bool,
}

/// Question to the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// Make the experiment the current one.
    Load(Experiment),
    /// The same, over an image that the person chose.
    LoadImage {
        /// Mount options and workload.
        experiment: Experiment,
        /// The image.
        #[serde(with = "serde_bytes")]
        image: Vec<u8>,
    },
    /// Let virtual time run on to this instant at most.
    Run {
        /// Where to stop, ns.
        until_ns: u64,
    },
    /// Stop running.
    Pause,
    /// See one instant.
    Frame(FrameAsk),
    /// Find the next or previous instant.
    Step {
        /// From, ns.
        at_ns: u64,
        /// Unit.
        unit: StepUnit,
        /// Direction.
        forward: bool,
    },
    /// Cut the power.
    Crash {
        /// When, ns.
        at_ns: u64,
        /// Loss model.
        loss: LossModel,
    },
    /// Compare two settings, beside the current experiment.
    Compare(Box<CompareAsk>),
    /// End the comparison.
    EndCompare,
    /// Judge so many instants of the run, in idle time.
    Danger {
        /// End of the run, ns.
        to_ns: u64,
        /// Instants.
        columns: u32,
    },
    /// Files to download.
    Export {
        /// When, ns.
        at_ns: u64,
        /// Loss model.
        loss: LossModel,
        /// After recovery instead of before.
        recovered: bool,
    },
}

/// A question with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Number, comes back with the answer.
    pub id: u32,
    /// Question.
    pub ask: Ask,
}

/// What the worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The engine is there.
    Hello {
        /// Its version.
        version: String,
    },
    /// Loaded.
    Loaded(Box<Loaded>),
    /// All that is wrong with the experiment.
    Problems(Vec<Problem>),
    /// Progress, unasked.
    Progress(Progress),
    /// One instant.
    Frame(Box<Frame>),
    /// Where a step leads; `None` when there is nothing.
    Stepped(Option<u64>),
    /// A power cut.
    Crash(Box<Crash>),
    /// Instants that were judged, in no order; the flag says that there are no more.
    Danger(Vec<Danger>, bool),
    /// A comparison, unasked as it goes on.
    Compared(Box<Comparison>),
    /// Files.
    Export(Box<Export>),
    /// Not possible, and why.
    Refused(String),
    /// The engine failed: message for a report.
    Panic(String),
}

/// An answer with the number of its question; 0 for what nobody asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Number.
    pub id: u32,
    /// Answer.
    pub answer: Answer,
}
