"""The words that the generated texts are made of. Written for this; no corpus is read."""

COMMON = """
a about above after again all also always am an and another any are around as ask at away back bad be because been
before begin below best better big both bring but buy by call came can change check city clear close cold come could
country day days did different do does done door down each early eat end enough even evening ever every far fast feel
few find first for found friend from full get give go good great group had half hand has have he hear help her here
high him his home hope hot hour house how i if in into is it its job just keep kind know large last late later learn
leave left less let letter life light like line list little live long look lot low made main make man many may maybe me
mean meet message might minute moment money month more morning most move much must my name near need never new next
night no not note nothing now number of off offer often old on once one only open or other our out over own page paid
part past pay people piece place plan play please point possible price problem put question quick quite rather read
ready real right room run said same say second see seem send sent set several she short should show side since small so
some soon still stop street such sure take talk tell than thank thanks that the their them then there these they thing
think this those three time to today together told tomorrow tonight too took top total town try turn two under until up
us use very wait want was way we week well went were what when where which while who whole why will wish with without
word work world would write wrong year yes yesterday yet you young your hello hi dear regards sincerely kindly sorry
email phone address account answer task text input output value field fields schema labels label following given only
extract return classify sentence request customer user system reply route find every message person
""".split()  # noqa: SIM905

FIRST = """
Anna Ben Carla David Elena Felix Grace Hugo Ines Jonas Karin Luis Maria Nora Oscar Paula Quinn Rosa Samir Tara Uwe Vera
Wanda Xavier Yara Zoe Amir Bela Chen Dora Emil Farid Gina Hana Ivan Julia Kofi Lena Marco Nadia Omar Petra Rami Sofia
Tomas Ulla Viktor Yusuf Mei Aiko Priya Ravi Ana José Zoë René
""".split()  # noqa: SIM905
LAST = """
Adler Brown Costa Dias Evans Fischer Garcia Huang Ito Jansen Keller Lopez Meyer Novak Okafor Patel Quist Rossi Silva
Tanaka Urban Vogel Weber Young Zhang Baker Carter Dubois Ekman Ferrari Green Hansen Ivanov Jones Kumar Larsen Moreno
Nguyen Olsen Park Reyes Schmidt Torres Walsh Müller Gómez
""".split()  # noqa: SIM905
CITIES = """
Berlin Paris Lisbon Oslo Rome Vienna Madrid Dublin Athens Prague Zurich Geneva Boston Chicago Denver Austin Seattle
Toronto Lima Quito Bogota Cairo Nairobi Accra Lagos Delhi Mumbai Tokyo Osaka Seoul Hanoi Manila Sydney Perth Auckland
Helsinki Warsaw Krakow Porto Naples
""".split()  # noqa: SIM905
THINGS = """
lamp chair table jacket shoes phone laptop camera book kettle toaster bike helmet tent sofa mirror clock rug blanket
backpack watch printer monitor keyboard headset speaker bottle wallet umbrella scarf gloves hat drill ladder mixer pan
blender fan heater desk shelf
""".split()  # noqa: SIM905
COLORS = "red blue green black white yellow grey brown pink purple orange silver gold small large new old".split()  # noqa: SIM905
TITLE_WORDS = """
Summer Night Golden River Silent Moon Broken Road Blue Morning Electric Dreams Winter Garden Lost Highway Deep Forest
Slow Dance City Lights Wild Heart Happy Hour Rock Classics Jazz Coffee Piano Gold Rain Fire Island Party Workout Study
Focus Indie Folk Metal Latin Hits Best Of The Love Songs Evening Sunday Rising Sun Empty Chairs Little Star
""".split()  # noqa: SIM905
MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday today tomorrow".split()  # noqa: SIM905
CUISINES = "italian thai indian mexican greek french japanese turkish vegan korean spanish lebanese".split()  # noqa: SIM905
FIELD_WORDS = """
name title city date time amount price total size color item product order ticket number code status type kind topic
reason person customer contact place country street room table guests seats artist album song playlist genre rating
score unit quantity brand model year month day start end from to destination origin sender receiver subject priority
urgent department owner manager company role skill language note comment state weight height distance service category
""".split()  # noqa: SIM905

# a topic of a message, as labels name it, and ways to say it
TOPICS: dict[str, tuple[str, ...]] = {
    "refund": ("i want my money back", "please refund me", "i would like a refund", "give me a refund please"),
    "delivery": ("my parcel has not arrived", "where is my delivery", "the package is late", "when will it arrive"),
    "complaint": ("this is really bad", "i am very unhappy", "the service was terrible", "i am disappointed"),
    "thanks": ("thank you so much", "great work", "i am very happy with it", "thanks for the quick help"),
    "booking": ("i want to book", "please make a reservation", "can you reserve", "i would like to book"),
    "cancel": ("please cancel it", "i want to cancel", "cancel my order please", "i do not need it any more"),
    "play_music": ("play some music", "put on a song", "i want to hear something", "start playing"),
    "weather": ("what will the weather be", "is it going to rain", "tell me the forecast", "how cold will it get"),
    "question": ("i have a question", "can you tell me more", "how does this work", "what does it cost"),
    "address_change": ("i have moved", "please change my address", "my address is different now", "we moved house"),
    "password": ("i cannot log in", "i forgot my password", "my account is locked", "please reset my password"),
    "track": ("where is it now", "is it on its way", "has it been sent", "what is the status of my order"),
    "return": ("i want to send it back", "i would like to return it", "how do i return this", "it goes back to you"),
    "exchange": ("i need another size", "can i swap it", "please exchange it", "send me a new one instead"),
    "reschedule": (
        "can you come later",
        "please deliver it on another day",
        "i will not be home",
        "move it to a later day",
    ),
    "add": ("add this to my list", "put this one on the list", "include it please", "i want to add something"),
    "rate": ("i give this", "rate this one", "my rating is", "it deserves"),
    "search": ("find me", "look for", "show me where", "i am looking for"),
    "job": ("i want to apply", "is the position still open", "i am looking for work", "here is my application"),
}
