import { useEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  text: string;
  yes: string;
  no: string;
  danger: boolean; // the request cannot be taken back
  onYes: () => void;
  onNo: () => void;
}

/// Asks before a request that changes a job for good or for long. Escape and the first button mean no.
export function Confirm({ title, text, yes, no, danger, onYes, onNo }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onCancel={onNo}>
      <h2 id="confirm-title">{title}</h2>
      <p>{text}</p>
      <div class="buttons">
        <button autofocus onClick={onNo}>{no}</button>
        <button class={danger ? "danger" : "primary"} onClick={onYes}>{yes}</button>
      </div>
    </dialog>
  );
}
