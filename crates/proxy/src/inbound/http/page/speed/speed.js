"use strict";
// The speed test of the page for users. Its texts are in the button's data.
const button = document.getElementById("measure");
const told = document.getElementById("told");
const words = button.dataset;

const ask = async (part, more) => {
  const fields = { "X-Ekiden-Speed": "1" };
  const answer = await fetch("/?speed=" + part, { cache: "no-store", headers: fields, ...more });
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 200));
  return answer;
};

const show = (id, bits) => {
  const mega = bits / 1e6;
  const digits = mega < 10 ? 2 : mega < 100 ? 1 : 0;
  document.getElementById(id).textContent = mega.toFixed(digits) + " Mbit/s";
};

// the first second fills buffers, where there is more than that
const down = async () => {
  const reader = (await ask("down")).body.getReader();
  let mark, last, bytes = 0, marked = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    last = performance.now();
    if (!mark) mark = { time: last, bytes: value.length };
    bytes += value.length;
    if (!marked && last - mark.time > 1000) {
      mark = { time: last, bytes };
      marked = true;
    }
  }
  return mark && last > mark.time ? ((bytes - mark.bytes) * 8e3) / (last - mark.time) : 0;
};

// the second one takes some seconds
const up = async () => {
  let rate = 0;
  for (let round = 0; round < 2; round++) {
    const size = Math.min(Math.max(Math.round((rate / 8) * 3), 1 << 18), 1 << 24);
    const answer = await ask("up", { method: "POST", body: new Uint8Array(size) });
    rate = (await answer.json()).bits_per_second;
    show("speed-up", rate);
  }
};

button.hidden = false;
button.addEventListener("click", async () => {
  button.disabled = true;
  told.textContent = words.running;
  try {
    show("speed-down", await down());
    await up();
    if (document.getElementById("tunnel-down")) {
      const tunnel = await (await ask("tunnel")).json();
      show("tunnel-down", tunnel.down);
      show("tunnel-up", tunnel.up);
    }
    told.textContent = words.done;
  } catch (error) {
    told.textContent = words.failed + " " + error.message;
  }
  button.disabled = false;
});
