import type { ComponentChildren } from "preact";

export function navigate(to: string): void {
  history.pushState(null, "", to);
  dispatchEvent(new PopStateEvent("popstate"));
  scrollTo(0, 0);
}

/// A link that changes the page without loading it. A click with a modifier key acts as on a plain link.
export function Link({ to, children }: { to: string; children: ComponentChildren }) {
  return (
    <a href={to} onClick={(event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      navigate(to);
    }}>
      {children}
    </a>
  );
}
