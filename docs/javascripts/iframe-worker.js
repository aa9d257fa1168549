// Search from file://, where browsers refuse workers: a hidden frame stands in for one.
(() => {
  if (location.protocol !== "file:") return;

  const load = (page, url) =>
    new Promise((done) => {
      const script = page.createElement("script");
      script.src = url;
      script.onload = done;
      page.body.append(script);
    });

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const page = inside.document;
      page.open();
      page.write("<!doctype html><body></body>");
      page.close();
      inside.postMessage = (data) => this.hear(data);
      inside.importScripts = async (...urls) => {
        for (const one of urls) await load(page, one);
      };
      this.ready = load(page, url);
    }

    hear(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.Worker = FrameWorker;
})();
