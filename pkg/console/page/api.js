// The service's JSON. Paths are relative, so that the page works behind a proxy that adds to them.

let token = "";

export function hasToken() {
  return token !== "";
}

// useToken has all calls bring a token, if the service knows it, and returns whose it is.
export async function useToken(text) {
  if (!/^[!-~]+$/.test(text)) {
    throw new Failure(401, unknown); // no header could have it
  }
  const { by } = await ask("GET", "/api/v1/token", undefined, text);
  token = text;
  return by;
}

export function forgetToken() {
  token = "";
}

const unknown = "The service doesn't know this token";

// Failure is an answer that isn't wanted, in the service's own words. Its status is 0 where there was no answer.
export class Failure extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// ask sends body, if there is one, as JSON, and returns the JSON that is answered.
export async function ask(method, path, body, as = token) {
  const headers = { Accept: "application/json" };
  if (as !== "") {
    headers.Authorization = `Bearer ${as}`;
  }
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  let answer, text;
  try {
    answer = await fetch(path.replace(/^\//, ""), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(10000),
    });
    text = await answer.text();
  } catch {
    throw new Failure(0, "the service doesn't answer");
  }
  if (answer.status === 401) {
    throw new Failure(401, as === "" ? "This needs a token" : unknown);
  }
  if (!answer.ok) {
    throw new Failure(answer.status, reason(text) || `the service answers ${answer.status}`);
  }
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    throw new Failure(answer.status, "what answers isn't the admin port");
  }
}

// reason is why something failed: the error of a JSON object, or the text itself.
function reason(text) {
  try {
    return String(JSON.parse(text).error ?? "");
  } catch {
    return text.trim().slice(0, 500);
  }
}
