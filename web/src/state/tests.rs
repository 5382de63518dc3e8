//! The reducer, without a browser and without an engine: answers are made by hand here and only here.

use super::act::Act;
use super::recipe::Recipe;
use super::store::{Action, Dialog, Effect, Engine, Mode, Panel, State, Ui};
use crate::link::protocol::{
    Answer, Ask, Crash, Frame, Loaded, LossModel, Problem, Progress, RecoveryStep, Selection,
    Survivor,
};

fn asks(effects: &[Effect]) -> Vec<&Ask> {
    let asks = effects.iter().filter_map(|e| match e {
        Effect::Ask(ask) => Some(ask),
        _ => None,
    });
    asks.collect()
}

fn loaded() -> Answer {
    let loaded = Loaded {
        block_size: 4096,
        blocks: 65_536,
        groups: 2,
        blocks_per_group: 32_768,
        ..Default::default()
    };
    Answer::Loaded(Box::new(loaded))
}

fn progress(reachable_ns: u64, done: bool) -> Answer {
    Answer::Progress(Progress {
        reachable_ns,
        end_ns: 11_000_000_000,
        events: 9,
        running: !done,
        done,
    })
}

/// A state whose first scene has run to its end.
fn ran() -> State {
    let mut state = State::of_recipe(&Recipe::default());
    state.reduce(Action::Answer(Answer::Hello {
        version: "0".into(),
    }));
    state.reduce(Action::Answer(loaded()));
    state.reduce(Action::Answer(progress(11_000_000_000, true)));
    state
}

fn crash() -> Answer {
    let step = RecoveryStep {
        title: "PASS_SCAN".into(),
        ..Default::default()
    };
    let survivor = Survivor {
        path: "/b".into(),
        verdict: 2,
        ..Default::default()
    };
    Answer::Crash(Box::new(Crash {
        cut_ns: 7_000_000_000,
        steps: vec![step.clone(), step],
        survivors: vec![survivor],
        ..Default::default()
    }))
}

#[test]
fn the_first_scene_loads_runs_and_stops_at_its_instant() {
    let mut state = State::of_recipe(&Recipe::default());
    assert_eq!((state.ui, state.phase()), (Ui::Story, "loading"));
    let effects = state.reduce(Action::Answer(Answer::Hello {
        version: "0".into(),
    }));
    assert!(matches!(asks(&effects)[..], [Ask::Load(_)]));
    let effects = state.reduce(Action::Answer(loaded()));
    assert_eq!(
        asks(&effects),
        [&Ask::Run {
            until_ns: 11_000_000_000
        }]
    );
    state.reduce(Action::Answer(progress(2_000_000_000, false)));
    assert_eq!((state.at_ns, state.phase()), (2_000_000_000, "running"));
    state.reduce(Action::Answer(progress(11_000_000_000, true)));
    assert_eq!((state.at_ns, state.phase()), (7_000_000_000, "done"));
}

#[test]
fn crash_undo_switch_crash_takes_four_keys() {
    let mut state = ran();
    let effects = state.reduce(Action::Act(Act::PullPlug));
    assert_eq!(
        asks(&effects),
        [&Ask::Crash {
            at_ns: 7_000_000_000,
            loss: LossModel::AllLost
        }]
    );
    state.reduce(Action::Answer(crash()));
    assert!(state.crash.is_some() && state.story_seen);
    assert_eq!(state.recovery, 2);
    state.reduce(Action::Act(Act::Undo));
    assert!(state.crash.is_none());
    let effects = state.reduce(Action::Act(Act::Switch(0)));
    let [Ask::Load(experiment)] = asks(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert!(experiment.workload.lines().any(|l| l == "fsync /b"));
    state.reduce(Action::Answer(loaded()));
    state.reduce(Action::Answer(progress(11_000_000_000, true)));
    assert_eq!(state.at_ns, 7_000_000_000);
    let effects = state.reduce(Action::Act(Act::PullPlug));
    assert!(matches!(
        asks(&effects)[..],
        [Ask::Crash {
            at_ns: 7_000_000_000,
            ..
        }]
    ));
}

#[test]
fn recovery_steps_both_ways_and_stops_at_the_ends() {
    let mut state = ran();
    state.reduce(Action::Answer(crash()));
    for expected in [1, 0, 0] {
        state.reduce(Action::Act(Act::Recover(false)));
        assert_eq!(state.recovery, expected);
    }
    for expected in [1, 2, 2] {
        state.reduce(Action::Act(Act::Recover(true)));
        assert_eq!(state.recovery, expected);
    }
}

#[test]
fn seeking_past_the_horizon_runs_on_and_arrives() {
    let mut state = ran();
    state.progress.reachable_ns = 3_000_000_000;
    state.progress.done = false;
    state.progress.running = false;
    let effects = state.reduce(Action::Seek(8_000_000_000));
    assert_eq!(
        asks(&effects),
        [&Ask::Run {
            until_ns: 8_000_000_000
        }]
    );
    assert_eq!(state.at_ns, 3_000_000_000);
    state.reduce(Action::Answer(progress(8_500_000_000, false)));
    assert_eq!(state.at_ns, 8_000_000_000);
}

#[test]
fn playing_never_leaves_what_has_run_and_stops_at_the_end() {
    let mut state = ran();
    state.reduce(Action::Seek(0));
    state.reduce(Action::SetSpeed(1.0));
    state.reduce(Action::Act(Act::Play));
    state.reduce(Action::Tick(100.0));
    assert_eq!((state.at_ns, state.playing), (100_000_000, true));
    for _ in 0..200 {
        state.reduce(Action::Tick(100.0));
    }
    assert_eq!((state.at_ns, state.playing), (11_000_000_000, false));
}

#[test]
fn the_link_restores_the_screen() {
    let mut state = ran();
    state.reduce(Action::Act(Act::Bench));
    state.reduce(Action::Slot(1, Panel::Itable));
    state.reduce(Action::Seek(4_250_000_000));
    let copy = State::of_recipe(&Recipe::of_fragment(&state.recipe().fragment()).unwrap());
    assert_eq!((copy.slots, copy.ui), (state.slots, state.ui));
    assert_eq!(copy.want_ns, Some(4_250_000_000));
    state.reduce(Action::Answer(crash()));
    let link = state.recipe().fragment();
    let mut copy = State::of_recipe(&Recipe::of_fragment(&link).unwrap());
    copy.reduce(Action::Answer(Answer::Hello {
        version: "0".into(),
    }));
    copy.reduce(Action::Answer(loaded()));
    let effects = copy.reduce(Action::Answer(progress(11_000_000_000, true)));
    assert!(
        matches!(asks(&effects)[..], [Ask::Crash { .. }]),
        "a link to a crash cuts the power again"
    );
}

#[test]
fn a_plug_pulled_on_the_way_cuts_where_the_cursor_is_going() {
    let mut state = ran();
    state.reduce(Action::Act(Act::Switch(0)));
    assert!(asks(&state.reduce(Action::Act(Act::PullPlug))).is_empty());
    assert!(state.said.contains("will be cut"), "{}", state.said);
    state.reduce(Action::Answer(loaded()));
    state.reduce(Action::Act(Act::PullPlug));
    state.reduce(Action::Answer(progress(2_000_000_000, false)));
    let effects = state.reduce(Action::Answer(progress(11_000_000_000, true)));
    assert!(matches!(
        asks(&effects)[..],
        [Ask::Crash {
            at_ns: 7_000_000_000,
            ..
        }]
    ));
}

#[test]
fn a_plug_pulled_on_the_way_is_taken_back() {
    let mut state = ran();
    state.reduce(Action::Act(Act::Switch(0)));
    state.reduce(Action::Act(Act::PullPlug));
    state.reduce(Action::Act(Act::Undo));
    state.reduce(Action::Answer(loaded()));
    let effects = state.reduce(Action::Answer(progress(11_000_000_000, true)));
    assert!(asks(&effects).is_empty(), "the power stays on");
}

#[test]
fn problems_keep_the_page_usable() {
    let mut state = ran();
    state.reduce(Action::Act(Act::Run));
    let problem = Problem {
        path: "mkfs".into(),
        line: 0,
        reason: "unknown option -Q".into(),
    };
    state.reduce(Action::Answer(Answer::Problems(vec![problem])));
    assert_eq!((state.phase(), state.problems.len()), ("error", 1));
    let effects = state.reduce(Action::Act(Act::Run));
    assert!(matches!(asks(&effects)[..], [Ask::Load(_)]));
    assert!(state.problems.is_empty());
}

#[test]
fn a_dead_engine_is_named_and_asked_nothing() {
    let mut state = ran();
    state.reduce(Action::Answer(Answer::Panic("assertion failed".into())));
    assert_eq!(state.phase(), "error");
    assert!(matches!(&state.engine, Engine::Failed(m) if m.contains("assertion")));
    assert!(asks(&state.reduce(Action::Act(Act::Run))).is_empty());
}

#[test]
fn frames_keep_parts_that_were_not_asked_for_again() {
    let mut state = ran();
    let tree = Frame {
        at_ns: 1,
        tree: Some(Vec::new()),
        ..Default::default()
    };
    state.reduce(Action::Answer(Answer::Frame(Box::new(tree))));
    let light = Frame {
        at_ns: 2,
        map: Some(Vec::new()),
        ..Default::default()
    };
    state.reduce(Action::Answer(Answer::Frame(Box::new(light))));
    assert!(state.view.tree.is_some() && state.view.map.is_some());
    assert_eq!(state.view.at_ns, 2);
}

#[test]
fn panels_swap_modes_cycle_and_escape_unwinds() {
    let mut state = ran();
    state.reduce(Action::Act(Act::Bench));
    state.reduce(Action::Slot(0, Panel::Ring));
    assert_eq!(&state.slots[..2], [Panel::Ring, Panel::Map]);
    state.reduce(Action::Focus(Some(Panel::Ring)));
    for mode in [Mode::Table, Mode::Log, Mode::Picture] {
        state.reduce(Action::Act(Act::View));
        assert_eq!(state.mode(Panel::Ring), mode);
    }
    state.reduce(Action::ZoomTo(Some(1)));
    state.reduce(Action::Open(Some(Dialog::Help)));
    state.reduce(Action::Act(Act::Close));
    assert_eq!((state.dialog, state.zoom), (None, Some(1)));
    state.reduce(Action::Act(Act::Close));
    assert_eq!(state.zoom, None);
}

#[test]
fn a_selected_block_moves_the_zoomed_map() {
    let mut state = ran();
    state.reduce(Action::ZoomTo(Some(0)));
    state.reduce(Action::Select(Some(Selection::Block(32_768 + 5))));
    assert_eq!((state.zoom, state.map_cursor), (Some(1), 5));
}
