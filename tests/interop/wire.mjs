// What goes over the wire, for a script that has to know.

/** A fetch that notes every answer as soon as its head is there. */
export class Wire {
  answers = []
  #waiting = []

  fetch = async (url, options) => {
    const answer = await fetch(url, options)
    this.answers.push({ live: new URL(url).searchParams.get("live"), status: answer.status })
    this.#waiting = this.#waiting.filter(({ condition, resolve }) => !(condition(this.answers) && resolve()))
    return answer
  }

  get statuses() {
    return this.answers.map((answer) => answer.status)
  }

  /** Wait until the answers so far fulfil a condition. */
  until(condition) {
    if (condition(this.answers)) return Promise.resolve()
    return new Promise((resolve) => {
      this.#waiting.push({ condition, resolve: () => (resolve(), true) })
    })
  }
}
