import type { ApiError } from "./api";

export function ErrorNotice({ error }: { error: ApiError }) {
  return (
    <div class="notice bad" role="alert">
      <strong>{error.message}</strong>
      {error.remedy && <span> {error.remedy}</span>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: preact.ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}
