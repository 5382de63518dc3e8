//! The component that owns a canvas: size, pixel ratio, redraw only when something changed, pointer and keys.

use std::cell::RefCell;
use std::rc::Rc;

use wasm_bindgen::closure::Closure;
use wasm_bindgen::JsCast;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ResizeObserver};
use yew::prelude::*;

use super::{Pen, Tokens};

/// What draws. Two painters are the same when their stamps are.
#[derive(Clone)]
pub(crate) struct Painter {
    /// Changes whenever the picture does.
    pub(crate) stamp: String,
    /// Draws it.
    pub(crate) paint: Rc<dyn Fn(&Pen<'_>)>,
}

impl PartialEq for Painter {
    fn eq(&self, other: &Self) -> bool {
        self.stamp == other.stamp
    }
}

/// A point on a figure, CSS px, with the figure's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// From the left.
    pub(crate) x: f64,
    /// From the top.
    pub(crate) y: f64,
    /// Width of the figure.
    pub(crate) w: f64,
    /// Height of the figure.
    pub(crate) h: f64,
    /// Button held (a drag).
    pub(crate) down: bool,
    /// Second click.
    pub(crate) double: bool,
}

/// Properties of a figure.
#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// Accessible name.
    pub(crate) label: AttrValue,
    /// Painter.
    pub(crate) painter: Painter,
    /// Click or tap.
    #[prop_or_default]
    pub(crate) onpick: Callback<Point>,
    /// Pointer moves; `None` when it leaves.
    #[prop_or_default]
    pub(crate) onhover: Callback<Option<Point>>,
    /// Keys while the figure has focus.
    #[prop_or_default]
    pub(crate) onkey: Callback<KeyboardEvent>,
    /// Role for assistive technology.
    #[prop_or(AttrValue::Static("img"))]
    pub(crate) role: AttrValue,
    /// Stable name for tests.
    #[prop_or_default]
    pub(crate) act: AttrValue,
    /// Value for a slider.
    #[prop_or_default]
    pub(crate) value: AttrValue,
}

type Watch = (ResizeObserver, Closure<dyn FnMut()>);

/// See the module.
#[component]
pub(crate) fn Figure(props: &Props) -> Html {
    let node = use_node_ref();
    let size = use_state(|| (0.0, 0.0));
    {
        let node = node.clone();
        let size = size.clone();
        use_effect_with((), move |()| {
            let watch: Rc<RefCell<Option<Watch>>> = Rc::default();
            if let Some(canvas) = node.cast::<HtmlCanvasElement>() {
                let seen = canvas.clone();
                let closure = Closure::<dyn FnMut()>::new(move || {
                    let rect = seen.get_bounding_client_rect();
                    size.set((rect.width(), rect.height()));
                });
                if let Ok(observer) = ResizeObserver::new(closure.as_ref().unchecked_ref()) {
                    observer.observe(&canvas);
                    *watch.borrow_mut() = Some((observer, closure));
                }
            }
            move || {
                if let Some((observer, _)) = watch.borrow_mut().take() {
                    observer.disconnect();
                }
            }
        });
    }
    {
        let node = node.clone();
        let key = (props.painter.clone(), *size);
        use_effect_with(key, move |(painter, size)| {
            if let Some(canvas) = node.cast::<HtmlCanvasElement>() {
                draw(&canvas, *size, painter);
            }
        });
    }
    let onclick = {
        let onpick = props.onpick.clone();
        Callback::from(move |e: MouseEvent| onpick.emit(point(&e, false, e.detail() >= 2)))
    };
    let onpointermove = {
        let onhover = props.onhover.clone();
        Callback::from(move |e: PointerEvent| {
            onhover.emit(Some(point(&e, e.buttons() & 1 == 1, false)));
        })
    };
    let onpointerdown = {
        let onhover = props.onhover.clone();
        Callback::from(move |e: PointerEvent| onhover.emit(Some(point(&e, true, false))))
    };
    let onpointerleave = {
        let onhover = props.onhover.clone();
        Callback::from(move |_: PointerEvent| onhover.emit(None))
    };
    html! {
        <div class="figure">
            <canvas ref={node} tabindex="0" role={props.role.clone()} aria-label={props.label.clone()}
                data-act={(!props.act.is_empty()).then(|| props.act.clone())}
                aria-valuetext={(!props.value.is_empty()).then(|| props.value.clone())}
                aria-valuenow={(!props.value.is_empty()).then_some("0")}
                {onclick} {onpointermove} {onpointerdown} {onpointerleave} onkeydown={props.onkey.clone()} />
        </div>
    }
}

fn point(e: &MouseEvent, down: bool, double: bool) -> Point {
    let rect = e
        .target()
        .and_then(|t| t.dyn_into::<HtmlCanvasElement>().ok())
        .map(|c| c.get_bounding_client_rect());
    let (left, top, w, h) = rect.map_or((0.0, 0.0, 1.0, 1.0), |r| {
        (r.left(), r.top(), r.width(), r.height())
    });
    Point {
        x: f64::from(e.client_x()) - left,
        y: f64::from(e.client_y()) - top,
        w,
        h,
        down,
        double,
    }
}

fn draw(canvas: &HtmlCanvasElement, (w, h): (f64, f64), painter: &Painter) {
    if w < 1.0 || h < 1.0 {
        return;
    }
    let ratio = web_sys::window().map_or(1.0, |win| win.device_pixel_ratio());
    let (pw, ph) = ((w * ratio).round() as u32, (h * ratio).round() as u32);
    if canvas.width() != pw || canvas.height() != ph {
        canvas.set_width(pw);
        canvas.set_height(ph);
    }
    let Ok(Some(context)) = canvas.get_context("2d") else {
        return;
    };
    let Ok(ctx) = context.dyn_into::<CanvasRenderingContext2d>() else {
        return;
    };
    let _ = ctx.set_transform(ratio, 0.0, 0.0, ratio, 0.0, 0.0);
    let tokens = Tokens::read();
    let pen = Pen {
        ctx: &ctx,
        w,
        h,
        t: &tokens,
    };
    pen.clear();
    (painter.paint)(&pen);
}
